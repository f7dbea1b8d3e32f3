// Finds the mapped file that contains an address, for the message of a SIGBUS handler: if a mapped file is truncated or
// its disk fails while it is read, the process gets a signal with the address and no error.
// Limits: keeps up to kMostMappedRanges ranges, ignores further ones; keeps only the end of a long path.
// Thread safety: any thread. MappedPathAt may be called in a signal handler: it neither blocks nor allocates.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace hadal {

inline constexpr int kMostMappedRanges = 1024;

// Records that `bytes` are mapped from the file `path`.
void RememberMappedRange(std::span<const std::byte> bytes, std::string_view path);
// Removes the record of `bytes`.
void ForgetMappedRange(std::span<const std::byte> bytes);
// Returns the path of the file that contains `address`, valid until its range is forgotten; null if there is none.
const char* MappedPathAt(const void* address);

}  // namespace hadal
