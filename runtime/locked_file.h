// A file that one writer has at a time, by a lock that cannot outlive it.
//
// Why not a file whose mere presence locks: a killed process would leave it, and lock everybody out. The lock (flock(2)) belongs to the open
// file; it goes with the descriptor, however its process ends, and what a crash leaves is an unlocked file that the next one takes.
// Limitation: on a file system that knows no locks, or none between hosts, nobody is kept out.
// Threads: any; two openings exclude each other within a process, too.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// Opens the regular file `path` for writing, made where it is missing, and locks it until the descriptor is closed. Its contents are left
// as they are; whoever holds it may rename or remove it. Does not wait for another who has it.
// Errors: Aborted where another has it; FailedPrecondition for a symbolic link or what is no regular file; those of creating a file.
absl::StatusOr<FileDescriptor> OpenLocked(const std::string& path);

}  // namespace hadal
