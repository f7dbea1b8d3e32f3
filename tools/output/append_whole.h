// Appends to a file that others read while it grows: a piece (a line, a record) is written whole or not at all.
// Why: on a full disk write(2) may write only the beginning of a piece. A piece appended later, when there is space
// again, would follow it directly: two lines merged into one, or a record that no reader can skip.
// Why WholeAppender holds pieces: a run continues while its disk is full, and the metrics of those steps exist nowhere
// else.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// Creates or opens `path` for AppendWhole and for reading.  Errors: those of files; FailedPrecondition for a directory
// or a pipe.
absl::StatusOr<FileDescriptor> OpenForAppending(const std::string& path);

// Appends `piece`. After an error the file has its old length, unless another process has appended to it or it cannot
// be truncated (the message then says so). `file`: opened for appending; `path`: its name for messages.  Blocking.
// Errors: those of writing.  Threads: one at a time.
absl::Status AppendWhole(const FileDescriptor& file, std::string_view piece, const std::string& path);

// Appends pieces in order. A piece that cannot be written is held in memory and written before the next one.
// Blocking, as AppendWhole.  Threads: one at a time.
class WholeAppender {
 public:
  static constexpr size_t kMostHeldBytes = size_t{16} << 20;  // a piece that does not fit any more is lost

  // `file`: opened for appending.
  WholeAppender(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  // Writes the held pieces, then `piece`. Errors: those of writing any of them; `piece` is then held or lost.
  absl::Status Append(std::string piece);
  // Writes the held pieces. Errors: those of writing, with the number of pieces held or lost.
  absl::Status WriteHeld();
  // Returns how many pieces have been lost since the last call.
  int64_t TakeLost() { return std::exchange(lost_, 0); }
  const std::string& path() const { return path_; }

 private:
  FileDescriptor file_;
  std::string path_;
  std::deque<std::string> held_;
  size_t held_bytes_ = 0;
  int64_t lost_ = 0;
};

// Reads the lines of a file from the last to the first, so that the end of a large file can be examined without reading
// the rest.
//
// A line ends at "\n"; the last one may lack it. Reads blocks of kBlockBytes from the end as needed.
// Thread safety: one thread. Memory: the longest line and a block. The file must not change while it is read.
class ReverseLines {
 public:
  static constexpr int64_t kBlockBytes = int64_t{1} << 16;

  // Errors: those of OpenFile (files.h).
  static absl::StatusOr<ReverseLines> Open(const std::string& path);

  // Reads the line before the one that the last call read (first call: the last line), without its "\n"; returns false
  // if there is none. Blocking. Errors: those of reading; a line longer than kMostLineBytes (runtime/text.h).
  absl::StatusOr<bool> Next(std::string& line);

  // The offset of the line that Next read last, and whether it ends in "\n". Before Next: the file's size, and true.
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
