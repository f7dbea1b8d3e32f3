// Lines of text from a stream that nobody vouches for: UTF-8 is checked, a byte order mark and CR before LF are taken
// off. A line ends at "\n" only; a last line need not end. Thread safety: one thread. Memory: one line.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace hadal {

class TextLines {
 public:
  // `name` stands for the stream in errors. `in` must outlive the object.
  TextLines(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}

  // The next line; false at the end. Blocking: reads.
  // Errors: InvalidArgument for a line that is not UTF-8, with its number, and for what CheckIsPlainText refuses;
  // Internal when reading fails.
  absl::StatusOr<bool> Next(std::string& line);
  // Lines read so far.
  int64_t lines() const { return lines_; }

 private:
  std::istream& in_;
  std::string name_;
  int64_t lines_ = 0;
};

}  // namespace hadal
