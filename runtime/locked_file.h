// A file that only one writer can open at a time.
//
// The lock (flock(2)) belongs to the open file and ends with the descriptor, also if the process is killed. A lock file
// that locks by its existence would remain after a crash and keep out every later writer.
// Limitation: has no effect on a file system without locks, or between hosts if the file system's locks are local.
// Thread safety: any thread; two openings in one process exclude each other, too.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// Opens the regular file `path` for writing, creates it if it is missing, and holds its lock until the descriptor is
// closed. Keeps the contents; the holder may rename or remove the file. Does not wait for another holder.
// Errors: Aborted if another writer holds the lock; FailedPrecondition for a symbolic link or a file that is not
// regular; those of creating a file.
absl::StatusOr<FileDescriptor> OpenLocked(const std::string& path);

}  // namespace hadal
