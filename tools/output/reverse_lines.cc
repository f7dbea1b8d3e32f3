#include "tools/output/reverse_lines.h"

#include <algorithm>

#include "runtime/status_macros.h"
#include "runtime/text_line.h"

namespace hadal {

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
