// Text from outside: UTF-8 validation, lines of bounded length, and text that is safe to print. Names in manifests,
// metrics and errors may contain anything.
//
// Valid UTF-8 is what Unicode 15, table 3-7 lists: no overlong forms, no surrogates, nothing above U+10FFFF. NUL is
// valid.
// Thread safety: pure functions; streams and stream buffers as any. Memory: one line. Blocking: as the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hadal {

// Returns the length in bytes of the longest valid prefix: text.size() if all of it is valid, else the position of the
// first invalid sequence.
size_t ValidUtf8Prefix(std::string_view text);

inline constexpr size_t kMostLineBytes = size_t{64} << 20;

// As std::getline, but a line of more than kMostLineBytes makes the stream bad(): that is no text.
bool ReadLine(std::istream& in, std::string& line);

// Returns why ReadLine made the stream `name` bad(): InvalidArgument. `lines`: complete lines read before; `line`: the
// read part of the next one.
absl::Status ReadLineError(const std::string& name, int64_t lines, const std::string& line);

// Returns `text` in which control characters other than newline and tab (such as a terminal's escape sequences), and
// bytes that are not UTF-8, are replaced by their hexadecimal form: "\x1b".
std::string Printable(std::string_view text);

// As Printable, shortened for an error message. First, a word of more than 1,000 bytes becomes its first 100 bytes and
// its size; then, a line of more than 1,500 bytes becomes its first 1,000 bytes, its last 300 and its size.
std::string PrintableMessage(std::string_view message);

// A buffer for a std::ostream: writes what it is given to `out`, through Printable, line by line. A flush and the
// destructor also write an incomplete line.
class PrintableBuffer : public std::streambuf {
 public:
  explicit PrintableBuffer(std::ostream& out) : out_(out) {}
  ~PrintableBuffer() override { PrintableBuffer::sync(); }

 protected:
  int overflow(int byte) override;
  int sync() override;

 private:
  std::ostream& out_;
  std::string line_;
};

}  // namespace hadal
