// Characters and white space of UTF-8 text, as Python sees them: scores equal sacreBLEU's only if both split alike.
//
// White space is what Python's str.isspace accepts: Unicode's bidirectional types WS, B, S and category Zs. (A no-break
// space is white space, U+200B is not.) A byte that is not part of valid UTF-8 counts as a letter.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hadal {

// Bytes of the white-space character at the start of `text`, or 0.
size_t LeadingSpaceBytes(std::string_view text);

// Returns `text` without trailing white space.
std::string_view StripTrailingSpace(std::string_view text);

// The parts of `text` between white space, none of them empty: Python's str.split. They point into `text`.
std::vector<std::string_view> SplitAtSpace(std::string_view text);

// Removes the first character of `text` and returns its code point. REQUIRES: text is not empty.
uint32_t TakeCharacter(std::string_view& text);

}  // namespace hadal
