// Appends to a file that others read while it grows: a piece (a line, a record) is written whole or not at all.
//
// Why: on a full disk write(2) may write only the beginning of a piece. A piece appended later, when there is space
// again, would follow it directly: two lines merged into one, or a record that no reader can skip.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// Creates or opens `path` for AppendWhole and for reading.  Errors: those of files; FailedPrecondition for a directory
// or a pipe.
absl::StatusOr<FileDescriptor> OpenForAppending(const std::string& path);

// Appends `piece`. After an error the file has its old length, unless another process has appended to it. `file`:
// opened for appending.  Blocking.  Errors: those of writing.  Threads: one at a time.
absl::Status AppendWhole(const FileDescriptor& file, std::string_view piece, const std::string& path);

}  // namespace hadal
