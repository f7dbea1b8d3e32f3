// Corpus-level BLEU, equal to sacreBLEU's: mixed case, exponential smoothing, n-grams of orders 1 to 4; tokenizer 13a,
// sacreBLEU's default, or another of bleu_tokenizer.h.
//
//   p_n = 100 · Σ clipped matches / Σ n-grams of the hypotheses       n = 1 … 4
//   BP  = 1 if H ≥ R, else exp(1 − R/H)      H, R: hypothesis and (closest) reference lengths in tokens
//   BLEU = BP · exp(Σ_n ln p_n / 4)
// Smoothing: the k-th order without a match, in ascending order, has p_n = 100 / (2^k · n-grams of the hypotheses).
// BLEU is 0 if no order has a match. If an order has no n-gram at all (every hypothesis is shorter than n), BLEU and
// the precisions of this order and of all higher ones are 0.
//
// In runtime/, because validation in the trainer and `hadal bleu` must print the same number.
// Sources: Papineni et al. 2002; Chen & Cherry 2014 (smoothing method 3); Post 2018 (sacreBLEU). Computes the same
// double as sacreBLEU 2.6.0 on Python before 3.12 (whose sum() adds plainly), by the same order of operations.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "runtime/data/bleu_tokenizer.h"

namespace hadal {

inline constexpr int kBleuOrders = 4;
inline constexpr char kSacrebleuVersion[] =
    "2.6.0+hadal";  // in signatures: this version's definition, computed by hadal

// The counts that BLEU is computed from. May be added over segments in any order.
struct BleuCounts {
  std::array<int64_t, kBleuOrders> matches{};  // by order; clipped by the references
  std::array<int64_t, kBleuOrders> totals{};   // by order: n-grams of the hypotheses
  int64_t hypothesis_tokens = 0;
  int64_t reference_tokens = 0;  // of the reference closest in length; of two equally close, the shorter one

  BleuCounts& operator+=(const BleuCounts& other);
};

struct BleuScore {
  double score = 0;                              // [0, 100]
  std::array<double, kBleuOrders> precisions{};  // [0, 100], smoothed
  double brevity_penalty = 1;
  BleuCounts counts;
};

// Counts one segment against one or more references, all detokenised UTF-8. REQUIRES: at least one reference. Thread
// safety: any thread.
BleuCounts CountBleuMatches(const std::string& hypothesis, absl::Span<const std::string> references,
                            BleuTokenizer tokenizer = BleuTokenizer::k13a);

BleuScore BleuFromCounts(const BleuCounts& counts);

// Returns for example "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0+hadal".
std::string BleuSignature(int references, BleuTokenizer tokenizer);

// Returns for example "62.5/40.0/28.6/16.7 (BP = 1.000 ratio = 1.143 hyp_len = 8 ref_len = 7)", sacreBLEU's format.
std::string BleuDetails(const BleuScore& score);

}  // namespace hadal
