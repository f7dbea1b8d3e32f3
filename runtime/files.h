// Files and directories, with errors that say what, where, why and what to try; and the few durable operations that
// checkpoints and run directories need.
//
// Errors: every function maps errno to a Status: NotFound, PermissionDenied (also read-only file systems),
// ResourceExhausted (no space, quota, size limit, open files), AlreadyExists, FailedPrecondition (wrong kind of file),
// else Internal: a device or file server that fails (EIO, ESTALE) among them. DataLoss is only said of a file that is
// damaged. Thread safety: all functions may be called from any thread. Blocking: all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hadal {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Closes now and returns what close(2) reports (network file systems report failed writes late).
  absl::Status Close(const std::string& path);

 private:
  int fd_ = -1;
};

// "cannot <action> <path>: <errno's text>. <what to try>".
absl::Status ErrnoStatus(int error, const std::string& action, const std::string& path);

// "a" + "b" = "a/b".
std::string JoinPath(const std::string& directory, const std::string& name);
// Last component; directory part ("." when there is none).
std::string BaseName(const std::string& path);
std::string DirectoryName(const std::string& path);
// True for a name of one component: not empty, not "." or "..", without '/' and NUL.
bool IsPlainFileName(const std::string& name);

// Opens a regular file for reading. Anything else (directory, pipe, device) is FailedPrecondition; never hangs.
absl::StatusOr<FileDescriptor> OpenFile(const std::string& path);
// The same inside `directory`. `name` must be a plain name; a symbolic link is not followed.
absl::StatusOr<FileDescriptor> OpenFileIn(const std::string& directory, const std::string& name);
// Creates a file that must not exist.
absl::StatusOr<FileDescriptor> CreateFile(const std::string& path);
// Whether a file could be created or replaced at `path`, as far as permissions tell. To be called before long work
// whose result goes there.
absl::Status CheckCreatable(const std::string& path);
// Checks that `output` is none of `inputs`, under any name: opening it would empty an input. Errors: InvalidArgument.
absl::Status CheckIsNoneOf(const std::string& output, const std::vector<std::string>& inputs);
// The error of creating `path` for an errno; names a missing directory.
absl::Status CreationError(int error, const std::string& path);

absl::StatusOr<int64_t> FileBytes(const FileDescriptor& file, const std::string& path);
absl::Status WriteAll(const FileDescriptor& file, std::string_view bytes, const std::string& path);
// Reads exactly `bytes` bytes at `offset`; DataLoss when the file ends before.
absl::Status ReadAt(const FileDescriptor& file, int64_t offset, int64_t bytes, void* destination,
                    const std::string& path);
// fsync: on return the bytes are on the device.
absl::Status SyncFile(const FileDescriptor& file, const std::string& path);
// fsync of a directory: on return its entries (creations, renames) are on the device.
absl::Status SyncDirectory(const std::string& directory);

// Whole contents; ResourceExhausted when there are more than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);
absl::StatusOr<std::string> ReadFileIn(const std::string& directory, const std::string& name, int64_t max_bytes);
// Creates `path` (which must not exist) with `text` and fsyncs it; a failed write leaves no file.
absl::Status WriteNewFile(const std::string& path, std::string_view text);
// Replaces the contents atomically and durably. A reader, or a crash, sees the old text or the new one; of several
// writers at once the last one's text, whole. The temporary name is `path`.<unique>, with a number after it where
// another writer uses that name; a file that a crash left there is overwritten. Errors name `path`;
// FailedPrecondition for the name of a device or a pipe, which stays what it is.
absl::Status ReplaceFile(const std::string& path, std::string_view text, const std::string& unique);

// `status` with `from` replaced by `to` in its message: the name asked for instead of the temporary one.
absl::Status WithPath(const absl::Status& status, const std::string& from, const std::string& to);
// Renames, replacing a file (or empty directory) of that name; durable after SyncDirectory of the parent.
absl::Status RenamePath(const std::string& from, const std::string& to);
// mkdir -p.
absl::Status MakeDirectories(const std::string& path);
// Names in a directory without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
// Removes a file, or a directory with its contents; symbolic links are removed, not followed. A missing path is OK.
absl::Status RemoveTree(const std::string& path);
bool PathExists(const std::string& path);
// Bytes that an unprivileged process may still write to the file system of `path`.
absl::StatusOr<int64_t> FreeBytes(const std::string& path);

}  // namespace hadal
