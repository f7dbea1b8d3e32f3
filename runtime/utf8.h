// UTF-8 validation, for all text from users.
//
// Valid is what Unicode 15, table 3-7 lists: no overlong forms, no surrogates, nothing above U+10FFFF. NUL is valid.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace hadal {

// Returns the length in bytes of the longest valid prefix: text.size() if all of it is valid, else the position of the
// first invalid sequence.
size_t ValidUtf8Prefix(std::string_view text);

}  // namespace hadal
