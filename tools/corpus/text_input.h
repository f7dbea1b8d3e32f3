// Opens text files, compressed with gzip or not.
//
// Thread safety: as std::istream. Memory: 64 KiB for a file.
#pragma once

#include <istream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

// Returns the text of a file, a pipe or a terminal; gzip's is decompressed as it is read. If reading fails, or the
// compressed data are damaged or end early, the stream becomes bad(). Blocking: opening a pipe waits for its writer.
// Errors: those of opening; InvalidArgument for a folder or another device.
absl::StatusOr<std::unique_ptr<std::istream>> OpenText(const std::string& path);

}  // namespace hadal
