#include "runtime/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/check.h"
#include "runtime/locked_file.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int kOpenForReading = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // O_NONBLOCK: open(2) does not hang on a named pipe

struct ErrnoMeaning {
  int error;
  absl::StatusCode code;
  const char* advice;
};
constexpr char kCheckOwner[] = "check the owner and the permissions of the path and of the directories above it";
constexpr char kFileSystemFailed[] =
    "the device or the file server failed, and the file may be intact; see the system's log, and try again";
constexpr ErrnoMeaning kErrnoMeanings[] = {
    {ENOENT, absl::StatusCode::kNotFound, "check the spelling, and that nothing removed it meanwhile"},
    {EACCES, absl::StatusCode::kPermissionDenied, kCheckOwner},
    {EPERM, absl::StatusCode::kPermissionDenied, kCheckOwner},
    {EROFS, absl::StatusCode::kPermissionDenied, "the file system is read-only; choose another directory"},
    {ENOSPC, absl::StatusCode::kResourceExhausted, "free some space, or choose a directory on another file system"},
    {EDQUOT, absl::StatusCode::kResourceExhausted, "the disk quota is used up; remove files or ask for more"},
    {EFBIG, absl::StatusCode::kResourceExhausted, "the file would be larger than the limit allows; see `ulimit -f`"},
    {EMFILE, absl::StatusCode::kResourceExhausted, "too many files are open; raise `ulimit -n`"},
    {ENFILE, absl::StatusCode::kResourceExhausted, "too many files are open; raise `ulimit -n`"},
    {EEXIST, absl::StatusCode::kAlreadyExists, "that name exists already; remove it, or choose another one"},
    {ENOTDIR, absl::StatusCode::kFailedPrecondition, "a component of the path is a file, not a directory"},
    {EISDIR, absl::StatusCode::kFailedPrecondition, "a directory has that name; choose another one"},
    {ELOOP, absl::StatusCode::kFailedPrecondition, "a symbolic link is not followed here"},
    {ENOTEMPTY, absl::StatusCode::kFailedPrecondition, ""},
    {ENAMETOOLONG, absl::StatusCode::kFailedPrecondition, "choose a shorter name"},
    {ENXIO, absl::StatusCode::kFailedPrecondition, "it is a socket or a device, not a file"},
    {ENODEV, absl::StatusCode::kFailedPrecondition, "it is a socket or a device, not a file"},
    {EIO, absl::StatusCode::kInternal, kFileSystemFailed},
    {ESTALE, absl::StatusCode::kInternal, kFileSystemFailed},
};

ErrnoMeaning MeaningOf(int error) {
  const auto* const found = std::ranges::find(kErrnoMeanings, error, &ErrnoMeaning::error);
  return found == std::end(kErrnoMeanings) ? ErrnoMeaning{error, absl::StatusCode::kInternal, ""} : *found;
}

std::string_view WithoutTrailingSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

absl::StatusOr<FileDescriptor> CheckRegular(int fd, const std::string& path) {
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  FileDescriptor file(fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) {
    return FailedPreconditionError("cannot read ", path, ": it is ",
                                   S_ISDIR(info.st_mode)
                                       ? "a directory; name a file"
                                       : "a pipe or a device; save its output to a file, and name that");
  }
  return file;
}

// Renaming a file to the name of a device or pipe would remove the device. /dev/stdout is a link into /proc, even if it
// leads to a regular file.
absl::Status CheckReplaceable(const std::string& path) {
  struct stat info;
  const bool regular = stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
  std::array<char, 7> target = {};
  const bool stream =
      readlink(path.c_str(), target.data(), target.size() - 1) > 0 && std::string_view(target.data()) == "/proc/";
  if (regular && !stream) return absl::OkStatus();
  return FailedPreconditionError("cannot replace ", path,
                                 ": it is a device or a pipe, not a file; choose the name of a file");
}

// Opens an empty file, to be renamed to `path`, that no other writer uses: `path`.<unique>, with a number appended if
// that is taken.
absl::StatusOr<FileDescriptor> OpenTemporary(const std::string& path, const std::string& unique,
                                             std::string& temporary) {
  constexpr int kMostWriters = 100;
  for (int number = 1;; ++number) {
    temporary = absl::StrCat(path, ".", unique);
    if (number > 1) absl::StrAppend(&temporary, ".", number);
    absl::StatusOr<FileDescriptor> file = OpenLocked(temporary);
    if (absl::IsAborted(file.status()) && number < kMostWriters) continue;
    // A crash may have left another user's file, or something that is not a file.
    if (!file.ok() && !absl::IsAborted(file.status()) && unlink(temporary.c_str()) == 0) file = OpenLocked(temporary);
    if (!file.ok()) return WithPath(file.status(), temporary, path);
    if (ftruncate(file->get(), 0) != 0) return WithPath(ErrnoStatus(errno, "empty", temporary), temporary, path);
    return file;
  }
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (valid()) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (valid()) close(fd_);
}

absl::Status FileDescriptor::Close(const std::string& path) {
  HADAL_CHECK(valid());
  // Linux frees the descriptor even when close(2) is interrupted, so it is never closed twice.
  if (close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return ErrnoStatus(errno, "close", path);
  return absl::OkStatus();
}

absl::Status ErrnoStatus(int error, const std::string& action, const std::string& path) {
  const ErrnoMeaning meaning = MeaningOf(error);
  std::string text = absl::StrCat("cannot ", action, " ", path, ": ", std::strerror(error));
  if (error == ENOSPC) {
    const absl::StatusOr<int64_t> free = FreeBytes(DirectoryName(path));
    if (free.ok()) absl::StrAppend(&text, "; ", *free, " bytes are free there");
  }
  if (*meaning.advice != '\0') absl::StrAppend(&text, "; ", meaning.advice);
  return absl::Status(meaning.code, text);
}

std::string JoinPath(const std::string& directory, const std::string& name) {
  if (directory.empty()) return std::string(name);
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", name);
}

std::string BaseName(const std::string& path) {
  const std::string_view bare = WithoutTrailingSlashes(path);
  return std::string(bare.substr(bare.rfind('/') + 1));  // npos + 1 = 0
}

std::string DirectoryName(const std::string& path) {
  const std::string_view bare = WithoutTrailingSlashes(path);
  const size_t slash = bare.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(bare.substr(0, std::max<size_t>(slash, 1)));
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

absl::StatusOr<FileDescriptor> OpenFile(const std::string& path) {
  return CheckRegular(open(path.c_str(), kOpenForReading), path);
}

absl::StatusOr<FileDescriptor> OpenDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open directory", path);
  return FileDescriptor(fd);
}

absl::StatusOr<FileDescriptor> OpenFileIn(const FileDescriptor& parent, const std::string& directory,
                                          const std::string& name) {
  if (!IsPlainFileName(name)) return DataLossError("\"", name, "\" is not the name of a file inside ", directory);
  absl::StatusOr<FileDescriptor> file =
      CheckRegular(openat(parent.get(), name.c_str(), kOpenForReading | O_NOFOLLOW), JoinPath(directory, name));
  if (absl::IsFailedPrecondition(file.status())) return DataLossError(file.status().message());
  return file;
}

absl::StatusOr<FileDescriptor> CreateFile(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return CreationError(errno, path);
  return FileDescriptor(fd);
}

absl::Status CreationError(int error, const std::string& path) {
  const std::string directory = DirectoryName(path);
  if (error != ENOENT || PathExists(directory)) return ErrnoStatus(error, "create", path);
  return NotFoundError("cannot create ", path, ": there is no directory ", directory,
                       "; create it, or choose another path");
}

absl::Status CheckCreatable(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return CreationError(EISDIR, path);
  HADAL_RETURN_IF_ERROR(CheckReplaceable(path));
  const std::string directory = DirectoryName(path);
  if (stat(directory.c_str(), &info) != 0) return CreationError(errno, path);
  if (!S_ISDIR(info.st_mode)) return CreationError(ENOTDIR, path);
  return access(directory.c_str(), W_OK | X_OK) == 0 ? absl::OkStatus() : CreationError(errno, path);
}

absl::Status CheckIsNoneOf(const std::string& output, const std::vector<std::string>& inputs) {
  struct stat out, in;
  if (stat(output.c_str(), &out) != 0 || !S_ISREG(out.st_mode)) return absl::OkStatus();
  for (const std::string& input : inputs) {
    if (stat(input.c_str(), &in) != 0 || in.st_dev != out.st_dev || in.st_ino != out.st_ino) continue;
    return InvalidArgumentError("writing ", output, " would empty ", input,
                                ", which is an input; choose another output file");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FileBytes(const FileDescriptor& file, const std::string& path) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  return static_cast<int64_t>(info.st_size);
}

absl::Status WriteAll(const FileDescriptor& file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status ReadAt(const FileDescriptor& file, int64_t offset, int64_t bytes, void* destination,
                    const std::string& path) {
  auto* out = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t got = pread(file.get(), out, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", path);
    if (got == 0) {
      return DataLossError(path, " ends at byte ", offset, ", ", bytes, " bytes before it should: it was cut short");
    }
    out += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::Status SyncFile(const FileDescriptor& file, const std::string& path) {
  if (fsync(file.get()) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor file, OpenDirectory(directory));
  // Some file systems cannot sync directories and return EINVAL; there is no alternative.
  if (fsync(file.get()) != 0 && errno != EINVAL) return ErrnoStatus(errno, "sync directory", directory);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path));
  return ReadWhole(file, path, max_bytes);
}

absl::StatusOr<std::string> ReadWhole(const FileDescriptor& file, const std::string& path, int64_t max_bytes) {
  HADAL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(file, path));
  if (bytes > max_bytes) {
    return InvalidArgumentError("cannot read ", path, ": it has ", bytes, " bytes, the limit for this kind of file is ",
                                max_bytes);
  }
  std::string contents(static_cast<size_t>(bytes), '\0');
  HADAL_RETURN_IF_ERROR(ReadAt(file, 0, bytes, contents.data(), path));
  return contents;
}

absl::Status WriteNewFile(const std::string& path, std::string_view text) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, CreateFile(path));
  absl::Status status = WriteAll(file, text, path);
  if (status.ok()) status = SyncFile(file, path);
  if (status.ok()) status = file.Close(path);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

absl::Status ReplaceFile(const std::string& path, std::string_view text, const std::string& unique) {
  HADAL_RETURN_IF_ERROR(CheckReplaceable(path));
  std::string temporary;
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor file, OpenTemporary(path, unique, temporary));
  absl::Status status = WriteAll(file, text, temporary);
  if (status.ok()) status = SyncFile(file, temporary);
  status = WithPath(status, temporary, path);
  // Renamed while open and therefore locked: no other writer can write to what is now `path`.
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = ErrnoStatus(errno, "replace", path);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(DirectoryName(path));
}

absl::Status WithPath(const absl::Status& status, const std::string& from, const std::string& to) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{from, to}}));
}

absl::Status RenamePath(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("rename ", from, " to"), to);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string prefix = path.substr(0, end);
    // For an existing directory EROFS and EACCES may be ignored like EEXIST.
    if (mkdir(prefix.c_str(), 0777) != 0) {
      const int error = errno;
      struct stat info;
      if (stat(prefix.c_str(), &info) != 0) {
        if (error != EEXIST || errno != ENOENT) {
          return ErrnoStatus(error == EEXIST ? errno : error, "make directory", prefix);
        }
        return FailedPreconditionError(
            "cannot make directory ", prefix,
            ": it is a symbolic link to a place that is not there; mount its disk, or make it");
      }
      if (end == std::string::npos && !S_ISDIR(info.st_mode)) return ErrnoStatus(EEXIST, "make directory", path);
    }
    if (end == std::string::npos) return absl::OkStatus();
  }
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator i(path, error), end; !error && i != end; i.increment(error)) {
    names.push_back(i->path().filename());
  }
  if (error) return ErrnoStatus(error.value(), "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? ErrnoStatus(error.value(), "remove", path) : absl::OkStatus();
}

bool PathExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

absl::StatusOr<int64_t> FreeBytes(const std::string& path) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) return ErrnoStatus(errno, "read the free space of", path);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace hadal
