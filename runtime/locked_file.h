// A file that only one writer can have open, by a lock that ends with the writer.
//
// Why not a file whose mere presence is the lock: a killed process would leave it, and nobody could write any more.
// This lock (flock(2)) belongs to the open file and ends with the descriptor, however the process ends. After a crash
// the file is unlocked, and the next writer takes it.
// Limitation: on a file system without locks, or without locks between hosts, nobody is kept out.
// Threads: any; two openings in one process exclude each other, too.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// Opens the regular file `path` for writing, creates it if it is missing, and locks it until the descriptor is closed.
// The contents are kept; the holder may rename or remove the file. Does not wait for another holder.
// Errors: Aborted where another has it; FailedPrecondition for a symbolic link or anything that is no regular file;
// those of creating a file.
absl::StatusOr<FileDescriptor> OpenLocked(const std::string& path);

}  // namespace hadal
