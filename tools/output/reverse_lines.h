// Reads the lines of a file from the last to the first, so that the end of a large file can be examined without reading
// the rest.
//
// A line ends at "\n"; the last one may lack it. Reads blocks of kBlockBytes from the end as needed.
// Thread safety: one thread. Memory: the longest line and a block. The file must not change while it is read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

class ReverseLines {
 public:
  static constexpr int64_t kBlockBytes = int64_t{1} << 16;

  // Errors: those of OpenFile (files.h).
  static absl::StatusOr<ReverseLines> Open(const std::string& path);

  // Reads the line before the previous one, without its "\n"; returns false if there is none. Blocking.
  // Errors: those of reading.
  absl::StatusOr<bool> Next(std::string& line);

  // The offset of the last line read, and whether it ends in "\n". Before the first Next: the file's size, and true.
  int64_t begin() const { return begin_; }
  bool complete() const { return complete_; }
  int64_t bytes_read() const { return bytes_read_; }

 private:
  ReverseLines(FileDescriptor file, std::string path, int64_t bytes)
      : file_(std::move(file)), path_(std::move(path)), begin_(bytes), buffer_begin_(bytes) {}
  // Reads the block before the buffer.
  absl::Status ReadBlock();

  FileDescriptor file_;
  std::string path_;
  int64_t begin_;
  bool complete_ = true;
  std::string buffer_;  // the file's bytes [buffer_begin_, begin_), possibly followed by more
  int64_t buffer_begin_;
  int64_t bytes_read_ = 0;
};

}  // namespace hadal
