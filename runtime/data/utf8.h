// Whether text is UTF-8. Every line from a person is checked, before anything is computed from it.
//
// Valid is what Unicode 15, table 3-7 lists: no overlong forms, no surrogates, nothing above U+10FFFF. NUL is valid.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace hadal {

// Bytes of the longest valid prefix: text.size() if all of it is valid, else where the first bad byte sequence starts.
size_t ValidUtf8Prefix(std::string_view text);

inline bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

}  // namespace hadal
