// Files and directories, and the durable operations that checkpoints and run directories need. Error messages name the
// operation, the path, the reason and a remedy.
// Errors: errno becomes NotFound, PermissionDenied (also read-only file systems), ResourceExhausted (no space, quota,
// size limit, open files), AlreadyExists, FailedPrecondition (wrong kind of file), else Internal (including a device or
// file server that fails: EIO, ESTALE). DataLoss means that the file's contents are damaged.
// In functions that take a descriptor, `path` only names the file in error messages.
// Thread safety: any thread. Blocking: all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  // Closes now and returns the result of close(2) (network file systems report failed writes late).
  absl::Status Close(const std::string& path);

 private:
  int fd_ = -1;
};

// Returns the error "cannot <action> <path>: <errno's text>. <remedy>".
absl::Status ErrnoStatus(int error, const std::string& action, const std::string& path);

// Returns "a/b" for "a" and "b".
std::string JoinPath(const std::string& directory, const std::string& name);
// Returns "b" for "a/b".
std::string BaseName(const std::string& path);
// Returns "a" for "a/b", and "." if the path has no directory.
std::string DirectoryName(const std::string& path);
// Whether `name` is a single path component: not empty, not "." or "..", without '/' and NUL.
bool IsPlainFileName(const std::string& name);

// Opens a regular file for reading. Errors: FailedPrecondition for a directory, pipe, socket or device. Never hangs.
absl::StatusOr<FileDescriptor> OpenFile(const std::string& path);
// Opens a directory for OpenFileIn. The descriptor stays with the directory when that is renamed.
absl::StatusOr<FileDescriptor> OpenDirectory(const std::string& path);
// Opens the file `name` of the open directory `parent` for reading. `directory` is the parent's path, for messages. For
// files that hadal has written: a symbolic link, directory, pipe, socket or device in the file's place, or a `name`
// that is no plain file name, is a DataLoss error. Other errors: as OpenFile.
absl::StatusOr<FileDescriptor> OpenFileIn(const FileDescriptor& parent, const std::string& directory,
                                          const std::string& name);
// Creates a file. Errors: AlreadyExists.
absl::StatusOr<FileDescriptor> CreateFile(const std::string& path);
// Checks that permissions allow creating or replacing a file at `path`. Call it before long work whose result goes
// there.
absl::Status CheckCreatable(const std::string& path);
// Checks that `output` is none of `inputs` under any name; opening it would truncate an input. Errors: InvalidArgument.
absl::Status CheckIsNoneOf(const std::string& output, const std::vector<std::string>& inputs);
// Returns the error for a failed creation of `path` with errno `error`; it names a missing directory.
absl::Status CreationError(int error, const std::string& path);

absl::StatusOr<int64_t> FileBytes(const FileDescriptor& file, const std::string& path);
absl::Status WriteAll(const FileDescriptor& file, std::string_view bytes, const std::string& path);
// Reads exactly `bytes` bytes at `offset`. Errors: DataLoss if the file ends before.
absl::Status ReadAt(const FileDescriptor& file, int64_t offset, int64_t bytes, void* destination,
                    const std::string& path);
// fsync: on return the bytes are on disk.
absl::Status SyncFile(const FileDescriptor& file, const std::string& path);
// fsync of a directory: on return its entries (creations, renames) are on disk.
absl::Status SyncDirectory(const std::string& directory);

// Returns the whole contents. Errors: InvalidArgument if there are more than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);
// As ReadFile, of an open file; `path` is for messages.
absl::StatusOr<std::string> ReadWhole(const FileDescriptor& file, const std::string& path, int64_t max_bytes);
// Creates `path` (which must not exist) with `text` and fsyncs it. A failed write leaves no file.
absl::Status WriteNewFile(const std::string& path, std::string_view text);
// Replaces the contents atomically and durably: readers see the old text or the new one, also after a crash. Of several
// concurrent writers the last one's text remains, whole. Writes to `path`.<unique> first, with a number appended if
// another writer uses that name; overwrites such a file left by a crash. Errors name `path`; FailedPrecondition if
// `path` is a device or a pipe, which is not changed.
absl::Status ReplaceFile(const std::string& path, std::string_view text, const std::string& unique);

// Returns `status` with `from` replaced by `to` in its message: the user's path instead of the temporary one.
absl::Status WithPath(const absl::Status& status, const std::string& from, const std::string& to);
// Renames, replacing a file (or empty directory) of that name. Durable after SyncDirectory of the parent.
absl::Status RenamePath(const std::string& from, const std::string& to);
// mkdir -p.
absl::Status MakeDirectories(const std::string& path);
// Returns the sorted names in a directory, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
// Removes a file, or a directory with its contents. Does not follow symbolic links. OK if `path` does not exist.
absl::Status RemoveTree(const std::string& path);
bool PathExists(const std::string& path);
// Returns the bytes that an unprivileged process can still write to the file system of `path`.
absl::StatusOr<int64_t> FreeBytes(const std::string& path);

}  // namespace hadal
