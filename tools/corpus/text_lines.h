// Reads lines of text from an untrusted stream: checks UTF-8, removes a CR before LF and, if asked, a byte order mark.
// A line ends only at "\n"; the last one need not end in it. Thread safety: one thread. Memory: one line.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace hadal {

inline constexpr char kByteOrderMark[] = "\xEF\xBB\xBF";  // of UTF-8

enum class ByteOrderMark { kRemoved, kKept };

class TextLines {
 public:
  // `name`: the stream's name in errors. `in` must outlive the object.
  TextLines(std::istream& in, std::string name, ByteOrderMark mark = ByteOrderMark::kRemoved)
      : in_(in), name_(std::move(name)), mark_(mark) {}

  // Reads the next line; returns false at the end. Blocking.
  // Errors: InvalidArgument for a line that is not UTF-8, with its number, and for what CheckIsPlainText and ReadLine
  // reject.
  absl::StatusOr<bool> Next(std::string& line);
  // Number of lines read so far.
  int64_t lines() const { return lines_; }

 private:
  std::istream& in_;
  std::string name_;
  ByteOrderMark mark_;
  int64_t lines_ = 0;
};

}  // namespace hadal
