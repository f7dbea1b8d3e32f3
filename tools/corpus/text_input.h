// Opens text files, compressed with gzip or not, and reads lines of bounded length.
//
// Thread safety: as std::istream. Memory: 64 KiB for a file.
#pragma once

#include <cstddef>
#include <istream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

// Returns the text of a file, a pipe or a terminal; gzip's is decompressed as it is read. If reading fails, or the
// compressed data are damaged or end early, the stream becomes bad(). Blocking: opening a pipe waits for its writer.
// Errors: those of opening; InvalidArgument for a folder or another device.
absl::StatusOr<std::unique_ptr<std::istream>> OpenText(const std::string& path);

inline constexpr size_t kMostLineBytes = size_t{64} << 20;

// As std::getline, but a line of more than kMostLineBytes makes the stream bad(): that is no text.
bool ReadLine(std::istream& in, std::string& line);

}  // namespace hadal
