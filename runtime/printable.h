// Makes text from files and command lines safe to print: names in manifests, metrics and errors may contain anything.
// Thread safety: pure functions; PrintableBuffer as any stream buffer.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace hadal {

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
