// The tokenisation BLEU is defined on: mteval-v13a's language-independent rules, as sacreBLEU's tokenizer "13a" applies
// them.
//
// Why here: a BLEU score is only comparable when every rule agrees, so the rules stand in one file with their order.
//   1. "<skipped>" and "-\n" are removed, "\n" becomes a space; &quot; &amp; &lt; &gt; become characters, in that order
//      (so "&amp;lt;" ends as "<").
//   2. ASCII punctuation other than . , - ' is set off by spaces.
//   3. . and , are set off unless a digit stands before them; then unless a digit stands after them.
//   4. - is set off after a digit.
//   5. The result is split at white space as Unicode (and Python's str.split) defines it.
// "Digit" is 0-9 only. Each rule scans left to right over non-overlapping matches, so in "a..b" rule 3 sees one match.
// Source: mteval-v13a.pl (NIST 2009); sacreBLEU 2.6.0 is the reference the tests compare with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hadal {

// `text` is UTF-8; a byte that is not part of valid UTF-8 counts as a letter. Trailing white space is ignored.
// Threads: safe. Errors: none.
std::vector<std::string> Tokenize13a(std::string_view text);

// `text` without the white space at its end, in Unicode's sense (a no-break space is white space, U+200B is not).
std::string_view StripTrailingSpace(std::string_view text);

}  // namespace hadal
