// Which file lies where in memory.
//
// Why it exists: a mapped file that is truncated while it is read, or whose disk fails, is a signal (SIGBUS) and no error, and only the
// address that was read says which file it was.
// Limits: kMostMappedRanges at a time, further ones are not known; of a long path its end.
// Threads: any. MappedPathAt may be called in a signal's handler: it waits for nothing and takes no memory.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace hadal {

inline constexpr int kMostMappedRanges = 1024;

// `bytes` are the file's from here on.
void RememberMappedRange(std::span<const std::byte> bytes, std::string_view path);
// … no longer.
void ForgetMappedRange(std::span<const std::byte> bytes);
// The path of the file that `address` is in, valid until that is forgotten; null: in none.
const char* MappedPathAt(const void* address);

}  // namespace hadal
