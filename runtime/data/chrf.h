// Corpus-level chrF, equal to sacreBLEU's: n-grams of 1 to 6 characters without white space, and of 1 to `word_order`
// words (chrF: 0; chrF++: 2), mixed case, β = 2.
//
//   p_n = matches / n-grams of the hypotheses      r_n = matches / n-grams of the references      sums over the corpus
//   chrF = 100 · (1 + β²) P·R / (β²·P + R)     P, R: means of p_n and r_n over the orders of which both sides have
//                                              n-grams ("effective order")
// A segment's n-grams of an order count only if its reference has one of that order. If a segment has several
// references, only one counts: the one with which the segment alone has the highest chrF, the first of equals. Words
// are split at white space. In a word of two or more characters, a last character that is ASCII punctuation becomes a
// word of its own; otherwise a first character that is ASCII punctuation does.
// Sources: Popović 2015, 2017; sacreBLEU 2.6.0, whose order of operations is kept, so that the doubles are equal.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace hadal {

inline constexpr int kChrfCharacterOrders = 6, kChrfMostWordOrder = 2;

// The counts of n-grams that chrF is computed from: character orders 1 to 6, then word orders. Segments' counts add up.
struct ChrfCounts {
  struct Order {
    int64_t hypothesis = 0, reference = 0, matches = 0;
  };
  std::array<Order, kChrfCharacterOrders + kChrfMostWordOrder> orders{};

  ChrfCounts& operator+=(const ChrfCounts& other);
};

// Counts one segment against one or more references, all detokenised UTF-8. REQUIRES: at least one reference,
// 0 ≤ word_order ≤ kChrfMostWordOrder. Thread safety: any thread.
ChrfCounts CountChrfMatches(const std::string& hypothesis, absl::Span<const std::string> references, int word_order);

// Returns a score in [0, 100]. Orders without n-grams, as those of words in counts of word order 0, have no effect.
double ChrfFromCounts(const ChrfCounts& counts);

// Returns sacreBLEU's name: "chrF2" (the 2 is β), and a "+" for each word order.
std::string ChrfName(int word_order);
// Returns for example "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0+hadal".
std::string ChrfSignature(int references, int word_order);

}  // namespace hadal
