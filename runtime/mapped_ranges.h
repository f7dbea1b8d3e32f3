// Which mapped file an address belongs to.
//
// Why it exists: if a mapped file is truncated while it is read, or its disk fails, the process gets a signal (SIGBUS),
// not an error. Only the address tells which file it was.
// Limits: kMostMappedRanges at a time, more are not remembered; of a long path only its end.
// Threads: any. MappedPathAt may be called in a signal handler: it does not wait and does not allocate.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace hadal {

inline constexpr int kMostMappedRanges = 1024;

// From now on `bytes` belong to the file `path`.
void RememberMappedRange(std::span<const std::byte> bytes, std::string_view path);
// `bytes` no longer belong to a file.
void ForgetMappedRange(std::span<const std::byte> bytes);
// The path of the file that `address` is in, valid until its range is forgotten; null: in no file.
const char* MappedPathAt(const void* address);

}  // namespace hadal
