// Appending to a file that others read while it grows: a piece (a line, a record) is there whole, or not at all.
//
// Why: on a full disk write(2) leaves the beginning of a piece. What is appended once there is space again would stand
// behind it: two lines in one, or a record that no reader gets past.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// Creates `path`, or opens what is there, for AppendWhole; also to be read.  Errors: those of files; FailedPrecondition
// for a directory or a pipe.
absl::StatusOr<FileDescriptor> OpenForAppending(const std::string& path);

// Appends `piece`; after an error the file ends where it did before, unless another process has appended meanwhile.
// `file`: opened for appending.  Blocking.  Errors: those of writing.  Threads: one at a time.
absl::Status AppendWhole(const FileDescriptor& file, std::string_view piece, const std::string& path);

}  // namespace hadal
