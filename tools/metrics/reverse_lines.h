// The lines of a file, last first: what came last is found without reading what came before.
//
// A line ends at "\n"; the last one may lack it. Blocks of kBlockBytes are read from the end as they are needed.
// Thread safety: one thread. Memory: the longest line and a block. The file must not change meanwhile.
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

  // The line before the one given last, without its "\n"; false when there is none. Blocking: reads.
  // Errors: what reading says.
  absl::StatusOr<bool> Next(std::string& line);

  // Of the line given last: where it begins in the file, and whether it has its "\n". Before: the file's end, true.
  int64_t begin() const { return begin_; }
  bool complete() const { return complete_; }
  int64_t bytes_read() const { return bytes_read_; }

 private:
  ReverseLines(FileDescriptor file, std::string path, int64_t bytes)
      : file_(std::move(file)), path_(std::move(path)), begin_(bytes), buffer_begin_(bytes) {}
  // Reads one more block in front of the buffer.
  absl::Status ReadBlock();

  FileDescriptor file_;
  std::string path_;
  int64_t begin_;
  bool complete_ = true;
  std::string buffer_;  // the file's bytes [buffer_begin_, begin_), and perhaps more behind
  int64_t buffer_begin_;
  int64_t bytes_read_ = 0;
};

}  // namespace hadal
