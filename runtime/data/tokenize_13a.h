// BLEU's tokenisation: mteval-v13a's language-independent rules, as in sacreBLEU's tokenizer "13a". BLEU scores are
// comparable only if every rule agrees.
//
// The rules, in order:
//   1. "<skipped>" and "-\n" are removed, "\n" becomes a space; &quot; &amp; &lt; &gt; become characters, in that order
//      (so "&amp;lt;" becomes "<").
//   2. Spaces are put around ASCII punctuation other than . , - '
//   3. . and , are separated by spaces unless a digit precedes them; then unless a digit follows them.
//   4. - is separated by spaces after a digit.
//   5. The result is split at white space as defined by Unicode (and Python's str.split).
// "Digit" is 0-9 only. Each rule scans left to right over non-overlapping matches, so in "a..b" rule 3 has one match.
// Source: mteval-v13a.pl (NIST 2009); the tests compare with sacreBLEU 2.6.0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hadal {

// `text` is UTF-8; a byte that is not part of valid UTF-8 counts as a letter. Trailing white space is ignored. Thread
// safety: any thread. Errors: none.
std::vector<std::string> Tokenize13a(std::string_view text);

// Returns `text` without trailing white space as Unicode defines it (a no-break space is white space, U+200B is not).
std::string_view StripTrailingSpace(std::string_view text);

}  // namespace hadal
