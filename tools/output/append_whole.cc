#include "tools/output/append_whole.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"

namespace hadal {

absl::StatusOr<FileDescriptor> OpenForAppending(const std::string& path) {
  // O_NONBLOCK, because a pipe without a reader would block the rank.
  FileDescriptor file(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!file.valid()) return CreationError(errno, path);
  struct stat found = {};
  if (fstat(file.get(), &found) != 0) return ErrnoStatus(errno, "stat", path);
  if (S_ISFIFO(found.st_mode)) return FailedPreconditionError(path, " is a pipe, not a regular file; remove it");
  return file;
}

absl::Status AppendWhole(const FileDescriptor& file, std::string_view piece, const std::string& path) {
  const absl::StatusOr<int64_t> before = FileBytes(file, path);
  std::string_view left = piece;
  while (!left.empty()) {
    const ssize_t written = write(file.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    left.remove_prefix(static_cast<size_t>(written));
  }
  if (left.empty()) return absl::OkStatus();
  absl::Status error = ErrnoStatus(errno, "append to", path);
  const auto written = static_cast<int64_t>(piece.size() - left.size());
  const absl::StatusOr<int64_t> now = FileBytes(file, path);
  if (written > 0 && before.ok() && now.ok() && *now == *before + written && ftruncate(file.get(), *before) != 0) {
    return absl::Status(error.code(), absl::StrCat(error.message(), "; the file ends with an incomplete piece"));
  }
  return error;
}

absl::Status WholeAppender::Append(std::string piece) {
  absl::Status status = WriteHeld();
  if (status.ok()) status = AppendWhole(file_, piece, path_);
  if (status.ok()) return status;
  if (held_bytes_ + piece.size() > kMostHeldBytes) {
    ++lost_;
  } else {
    held_bytes_ += piece.size();
    held_.push_back(std::move(piece));
  }
  return status;
}

absl::Status WholeAppender::WriteHeld() {
  for (; !held_.empty(); held_.pop_front()) {
    const absl::Status status = AppendWhole(file_, held_.front(), path_);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), "; not in the file: ", held_.size() + lost_,
                                                      " lines or records"));
    }
    held_bytes_ -= held_.front().size();
  }
  return absl::OkStatus();
}

absl::StatusOr<ReverseLines> ReverseLines::Open(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path));
  HADAL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(file, path));
  return ReverseLines(std::move(file), path, bytes);
}

absl::Status ReverseLines::ReadBlock() {
  if (buffer_.size() > kMostLineBytes) return ReadLineError(path_, 0, buffer_);
  // The buffer grows geometrically for a long line, so that bytes are moved rarely.
  const int64_t wanted = std::max<int64_t>(kBlockBytes, static_cast<int64_t>(buffer_.size()));
  const int64_t bytes = std::min(wanted, buffer_begin_);
  std::string block(static_cast<size_t>(bytes), '\0');
  HADAL_RETURN_IF_ERROR(ReadAt(file_, buffer_begin_ - bytes, bytes, block.data(), path_));
  buffer_.insert(0, block);
  buffer_begin_ -= bytes;
  bytes_read_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<bool> ReverseLines::Next(std::string& line) {
  if (begin_ == 0) return false;
  buffer_.resize(static_cast<size_t>(begin_ - buffer_begin_));
  if (buffer_.empty()) HADAL_RETURN_IF_ERROR(ReadBlock());
  complete_ = buffer_.back() == '\n';
  const size_t end_marks = complete_ ? 1 : 0;
  while (true) {
    const size_t end = buffer_.size() - end_marks;
    const size_t before = end == 0 ? std::string::npos : buffer_.rfind('\n', end - 1);
    if (before == std::string::npos && buffer_begin_ > 0) {
      HADAL_RETURN_IF_ERROR(ReadBlock());
      continue;
    }
    const size_t start = before == std::string::npos ? 0 : before + 1;
    line.assign(buffer_, start, end - start);
    begin_ = buffer_begin_ + static_cast<int64_t>(start);
    return true;
  }
}

}  // namespace hadal
