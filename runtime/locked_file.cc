#include "runtime/locked_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Whether `path` still names the open file: its previous holder may have renamed or removed it.
bool Leads(const std::string& path, const struct stat& file) {
  struct stat there;
  return lstat(path.c_str(), &there) == 0 && there.st_dev == file.st_dev && there.st_ino == file.st_ino;
}

}  // namespace

absl::StatusOr<FileDescriptor> OpenLocked(const std::string& path) {
  while (true) {
    // O_NONBLOCK: open(2) does not hang on a named pipe.
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0) return CreationError(errno, path);
    FileDescriptor file(fd);
    struct stat info;
    if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat", path);
    if (!S_ISREG(info.st_mode)) return FailedPreconditionError("cannot write ", path, ": it is not a regular file");
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return AbortedError("cannot write ", path, ": another process is writing it");
    }
    if (Leads(path, info)) return file;
  }
}

}  // namespace hadal
