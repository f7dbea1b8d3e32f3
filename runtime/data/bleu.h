// Corpus-level BLEU, equal to sacreBLEU's: mixed case, exponential smoothing, n-grams of orders 1 to 4; tokenizer 13a,
// sacreBLEU's default, or another (BleuTokenizer).
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
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "runtime/choice_words.h"

namespace hadal {

// Counts of the n-grams of a segment, for BLEU and chrF.
// Thread safety: pure functions.
inline constexpr int kMostNgramOrder = 6;

// An n-gram of tokens (numbers ≥ 0: words, or characters' code points), padded with 0. Because 0 is also a token,
// n-grams of different orders must not be compared.
using Ngram = std::array<int32_t, kMostNgramOrder>;
using NgramCounts = std::vector<std::pair<Ngram, int64_t>>;  // ascending by n-gram

// Counts the n-grams of one order. REQUIRES: 1 ≤ order ≤ kMostNgramOrder. Takes O(tokens · log tokens).
NgramCounts CountNgrams(absl::Span<const int32_t> tokens, int order);

// Returns 0 for an n-gram that is not in `counts`.
int64_t CountOf(const NgramCounts& counts, const Ngram& ngram);

// BLEU's tokenizers, as sacreBLEU's of the same names. BLEU scores are comparable only if every rule agrees.
//
// "13a", mteval-v13a's language-independent rules, in order:
//   1. "<skipped>" and "-\n" are removed, "\n" becomes a space; &quot; &amp; &lt; &gt; become characters, in that order
//      (so "&amp;lt;" becomes "<"); a space is put before and after the text.
//   2. Spaces are put around ASCII punctuation other than . , - '
//   3. . and , are separated by spaces if a character other than a digit precedes them; then if one follows them.
//   4. - is separated by spaces after a digit.
//   5. The result is split at white space (unicode_text.h).
// "Digit" is 0-9 only. Each rule scans left to right over non-overlapping matches, so in "a..b" rule 3 has one match.
//
// "zh": spaces are put around every Chinese character; then rules 2 to 5, without rule 1's entities and outer spaces.
// These count as Chinese: CJK radicals, ideographs with extension A and compatibility forms, strokes, Bopomofo, CJK and
// full-width punctuation, half-width kana, and U+2001 to U+2A6D (general punctuation, arrows, mathematics, symbols).
// sacreBLEU writes this last range for U+20000 to U+2A6D6, with too few digits; so ideographs of extension B do not
// count.
//
// "char": every character other than white space is a token.
// Source: mteval-v13a.pl (NIST 2009); sacreBLEU 2.6.0, whose tokens the tests compare with.
enum class BleuTokenizer { k13a, kChar, kZh };

// The tokenizers' names in configs, options and signatures.
inline constexpr Word<BleuTokenizer> kBleuTokenizers[] = {
    {"13a", BleuTokenizer::k13a}, {"char", BleuTokenizer::kChar}, {"zh", BleuTokenizer::kZh}};

// The tokenizer that BLEU of translations into `language` ("de", "zh", "zh_CN") is computed with: zh for Chinese, char
// for other languages without spaces between words (ja, th, lo, km, my, bo, dz), else 13a.
BleuTokenizer BleuTokenizerOf(std::string_view language);

// `text` is UTF-8; a byte that is not part of valid UTF-8 counts as a letter. Trailing white space is ignored. Thread
// safety: any thread. Errors: none.
std::vector<std::string> TokenizeForBleu(BleuTokenizer tokenizer, std::string_view text);

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
