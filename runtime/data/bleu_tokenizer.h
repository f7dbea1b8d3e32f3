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
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/choice_words.h"

namespace hadal {

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

}  // namespace hadal
