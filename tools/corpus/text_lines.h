// Reads lines of text from an untrusted stream: checks UTF-8, removes a byte order mark and a CR before LF. A line ends
// only at "\n"; the last one need not end in it. Thread safety: one thread. Memory: one line.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace hadal {

class TextLines {
 public:
  // `name`: the stream's name in errors. `in` must outlive the object.
  TextLines(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}

  // Reads the next line; returns false at the end. Blocking.
  // Errors: InvalidArgument for a line that is not UTF-8, with its number, and for what CheckIsPlainText rejects;
  // Internal if reading fails.
  absl::StatusOr<bool> Next(std::string& line);
  // Number of lines read so far.
  int64_t lines() const { return lines_; }

 private:
  std::istream& in_;
  std::string name_;
  int64_t lines_ = 0;
};

}  // namespace hadal
