// Bands of the vocabulary of an adaptive softmax (Grave et al. 2017, arXiv 1609.04309) and of adaptive input (Baevski
// and Auli 2019, arXiv 1809.10853). Frequent tokens come first; each further band is narrower by a constant factor.
//
//   band 0      tokens [0, cutoff 1), width d
//   band c ≥ 1  tokens [cutoff c, cutoff c + 1), width d / factor^c, rounded down
// Bands 1 … C (C = bands − 1) are called clusters. Band c has a table E_c of n_c tokens of width w_c, and a projection
// P_c between w_c and d. The order of these parameters in a sublayer, from SublayerRecord::table on (model_plan.h):
//   an embedding (a head tied to it uses all but P_0)   E_0 [n_0, d]      E_c [n_c, w_c]  P_c [d, w_c]  …  P_0 [d, d]
//   a head of its own                                   W [n_0 + C, d]    E_c [n_c, w_c]  P_c [w_c, d]  …
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_options.h"
#include "runtime/tensor.h"

namespace hadal {

struct AdaptiveBand {
  int32_t index = 0;
  int32_t first = 0;  // the first token
  int32_t words = 0;  // n_c: the number of tokens
  int32_t width = 0;  // w_c
  bool Holds(int32_t token) const { return first <= token && token - first < words; }
};

// Returns the bands of the target vocabulary; none without cutoffs. REQUIRES: valid options.
std::vector<AdaptiveBand> AdaptiveBands(const ModelOptions& options);

// The positions of a band's E_c and P_c among the parameters above.
inline int32_t TableOfBand(int32_t band) { return band == 0 ? 0 : 2 * band - 1; }
inline int32_t ProjectionOfBand(int32_t band, int32_t bands) { return band == 0 ? 2 * bands - 1 : 2 * band; }

// The expected share of the tokens in a band, by Zipf's law: ln(end / begin) / ln(vocabulary).
double TokenShare(const AdaptiveBand& band, const ModelOptions& options);
// Expected multiply-adds of the output head for a row, forward.
double HeadProducts(const ModelOptions& options);
// The same for a lookup in an adaptive embedding; `tables`: the tables and projections that it uses
// (ModelPlan::Tables).
double InputProducts(const ModelOptions& options, int32_t tables);

// The number of rows that are processed at a time; part of the order of accumulation.
inline constexpr int64_t kAdaptiveRows = 256;

// Calls body(rows) with the indices of the rows whose token is in the band: ascending, at most buffer.size at a time.
// `buffer` holds them.
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
