// Counts of the n-grams of a segment, for BLEU and chrF.
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace hadal {

inline constexpr int kMostNgramOrder = 6;

// An n-gram of tokens (numbers ≥ 0: words, or characters' code points), padded with 0. Because 0 is also a token,
// n-grams of different orders must not be compared.
using Ngram = std::array<int32_t, kMostNgramOrder>;
using NgramCounts = std::vector<std::pair<Ngram, int64_t>>;  // ascending by n-gram

// Counts the n-grams of one order. REQUIRES: 1 ≤ order ≤ kMostNgramOrder. Takes O(tokens · log tokens).
NgramCounts CountNgrams(absl::Span<const int32_t> tokens, int order);

// Returns 0 for an n-gram that is not in `counts`.
int64_t CountOf(const NgramCounts& counts, const Ngram& ngram);

}  // namespace hadal
