// The tokenisation that BLEU is defined on: mteval-v13a's language-independent rules, as in sacreBLEU's tokenizer
// "13a".
//
// BLEU scores can be compared only if every rule agrees. The rules, in order:
//   1. "<skipped>" and "-\n" are removed, "\n" becomes a space; &quot; &amp; &lt; &gt; become characters, in that order
//      (so "&amp;lt;" ends as "<").
//   2. ASCII punctuation other than . , - ' is set off by spaces.
//   3. . and , are set off unless a digit stands before them; then unless a digit stands after them.
//   4. - is set off after a digit.
//   5. The result is split at white space as defined by Unicode (and Python's str.split).
// "Digit" is 0-9 only. Each rule scans left to right over non-overlapping matches, so in "a..b" rule 3 has one match.
// Source: mteval-v13a.pl (NIST 2009); the tests compare with sacreBLEU 2.6.0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hadal {

// `text` is UTF-8; a byte that is not part of valid UTF-8 counts as a letter. Trailing white space is ignored.
// Threads: safe. Errors: none.
std::vector<std::string> Tokenize13a(std::string_view text);

// `text` without white space at its end, as Unicode defines it (a no-break space is white space, U+200B is not).
std::string_view StripTrailingSpace(std::string_view text);

}  // namespace hadal
