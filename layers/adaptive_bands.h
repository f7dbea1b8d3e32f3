// Bands of the vocabulary of an adaptive softmax (Grave et al. 2017, arXiv 1609.04309) and of adaptive input (Baevski
// and Auli 2019, arXiv 1809.10853). Frequent tokens come first; each further band is narrower by a constant factor.
//
//   band 0      tokens [0, cutoff 1), width d
//   band c ≥ 1  tokens [cutoff c, cutoff c + 1), width d / factor^c, rounded down
// C = bands − 1 clusters. A sublayer's parameters from ModelPlan's `table` on, in this order:
//   an embedding (the head uses all but P_0)    E_0 [n_0, d]      E_c [n_c, w_c]  P_c [d, w_c]  …  P_0 [d, d]
//   a head that shares nothing                  W [n_0 + C, d]    E_c [n_c, w_c]  P_c [w_c, d]  …
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_options.h"
#include "runtime/tensor.h"

namespace hadal {

struct AdaptiveBand {
  int32_t index = 0;
  int32_t first = 0;  // token
  int32_t words = 0;
  int32_t width = 0;
  bool Holds(int32_t token) const { return first <= token && token - first < words; }
};

// Returns the bands of the target vocabulary; none without cutoffs. REQUIRES: valid options.
std::vector<AdaptiveBand> AdaptiveBands(const ModelOptions& options);

// The parameters of a band, counted from the sublayer's table.
inline int32_t TableOfBand(int32_t band) { return band == 0 ? 0 : 2 * band - 1; }
inline int32_t ProjectionOfBand(int32_t band, int32_t bands) { return band == 0 ? 2 * bands - 1 : 2 * band; }

// The expected share of the tokens in a band, by Zipf's law: ln(end / begin) / ln(vocabulary).
double TokenShare(const AdaptiveBand& band, const ModelOptions& options);
// Expected multiply-adds of a row, forward: of the output head, and of an embedding that uses `tables` tables.
double HeadProducts(const ModelOptions& options);
double InputProducts(const ModelOptions& options, int32_t tables);

// The number of rows that are processed at a time; part of the order of accumulation.
inline constexpr int64_t kAdaptiveRows = 256;

// Calls body(rows) for the rows whose token is in the band: ascending, at most buffer.size at a time.
template <typename Body>
void ForBandRows(ConstTokens tokens, const AdaptiveBand& band, VectorOf<int32_t> buffer, Body&& body) {
  int64_t count = 0;
  const auto flush = [&] {
    if (count > 0) body(ConstTokens(buffer.data, count));
    count = 0;
  };
  for (int64_t row = 0; row < tokens.size; ++row) {
    if (!band.Holds(tokens[row])) continue;
    buffer[count++] = static_cast<int32_t>(row);
    if (count == buffer.size) flush();
  }
  flush();
}

}  // namespace hadal
