// Files and directories with errors that say what, where, why and what to try; and the few durable operations that
// checkpoints and run directories are made of.
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
  // Closes now and reports what close(2) reports (network file systems tell late of failed writes).
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
// True for a name of one component: not empty, ".", ".." and without '/' and NUL.
bool IsPlainFileName(const std::string& name);

// Opens a regular file for reading. Anything else (directory, pipe, device) is FailedPrecondition, and nothing hangs.
absl::StatusOr<FileDescriptor> OpenFile(const std::string& path);
// The same inside `directory`: `name` must be a plain name and is not followed when it is a symbolic link.
absl::StatusOr<FileDescriptor> OpenFileIn(const std::string& directory, const std::string& name);
// Creates a file that must not exist.
absl::StatusOr<FileDescriptor> CreateFile(const std::string& path);
// Whether a file could be created at `path`, or replaced there, as far as permissions tell: asked before long work for
// it.
absl::Status CheckCreatable(const std::string& path);
// Whether `output` is none of `inputs`, by whatever name: opening it would empty what is still to be read.  Errors:
// InvalidArgument.
absl::Status CheckIsNoneOf(const std::string& output, const std::vector<std::string>& inputs);
// The error of creating `path`, from its errno; names a directory that is missing.
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
// Replaces the contents atomically and durably: a reader, or a crash, sees the old text or the new one, and of several
// writers at once the last one's, whole. The temporary name is `path`.<unique>, with a number behind it where another
// is writing under that one; what a crash left there is written over. Errors speak of `path`.
absl::Status ReplaceFile(const std::string& path, std::string_view text, const std::string& unique);

// `status` with `to` in place of `from` in its message: of what was written under a temporary name, the name that was
// asked for.
absl::Status WithPath(const absl::Status& status, const std::string& from, const std::string& to);
// Renames, replacing a file (or empty directory) of that name; durable after SyncDirectory of the parent.
absl::Status RenamePath(const std::string& from, const std::string& to);
// mkdir -p.
absl::Status MakeDirectories(const std::string& path);
// Names in a directory without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
// Removes a file or a directory with all it holds; symbolic links are removed, not followed. A path that is not there
// is OK.
absl::Status RemoveTree(const std::string& path);
bool PathExists(const std::string& path);
// Bytes that an unprivileged process may still write to the file system of `path`.
absl::StatusOr<int64_t> FreeBytes(const std::string& path);

}  // namespace hadal
