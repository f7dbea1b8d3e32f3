// Reads lines of text from an untrusted stream: checks UTF-8, removes a CR before LF and, unless kKept, a byte order
// mark. A line ends only at "\n", which the last one may lack. Thread safety: one thread. Memory: one line.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hadal {

// Opens a text file, a pipe or a terminal; text compressed with gzip or zstd is decompressed as it is read. If reading
// fails, or the compressed data are damaged or end early, the stream becomes bad(). Memory: 64 KiB for a file, of zstd
// also its window (8 MiB and less at its usual levels). Thread safety: as std::istream. Blocking: opening a pipe waits
// for its writer.
// Errors: those of opening; InvalidArgument for a folder or another device.
absl::StatusOr<std::unique_ptr<std::istream>> OpenText(const std::string& path);

// Detects files that are not lines of UTF-8 text, mostly by their first bytes. `name`: the file's name in errors.
// `first_line`: its content before the first "\n". `rest`: a stream of what follows.
// Errors: InvalidArgument, with a remedy, for gzip, bzip2, xz, zstd, a byte order mark of UTF-16, TMX, fairseq's
// binarised text, and for text whose lines end in CR alone.
absl::Status CheckIsPlainText(const std::string& name, absl::string_view first_line, std::istream& rest);

// A line with a warning if more than a tenth of a text's tokens are unknown to its vocabulary, else "". Most often the
// text is not segmented as the one that the vocabulary was made of. `side`: source or target.
std::string UnknownWarning(const char* side, int64_t unknown, int64_t tokens);

// Returns the bytes of text in the files, for showing progress; the path "" counts as an empty file. 0: unknown,
// because a file is compressed or not regular.
int64_t TextBytes(std::span<const std::string> paths);

inline constexpr char kByteOrderMark[] = "\xEF\xBB\xBF";  // of UTF-8

enum class ByteOrderMark { kRemoved, kKept };

class TextLines {
 public:
  // `name`: the stream's name in errors. `in` must outlive the object.
  TextLines(std::istream& in, std::string name, ByteOrderMark mark = ByteOrderMark::kRemoved)
      : in_(&in), name_(std::move(name)), mark_(mark) {}
  // The lines of a file, a pipe or a terminal. Errors: those of OpenText.
  static absl::StatusOr<TextLines> Open(const std::string& path, ByteOrderMark mark = ByteOrderMark::kRemoved);

  // Returns the first bytes, those of a line among them that are there at once, at most 256; they are still to be read.
  // Blocking until there is one. REQUIRES: nothing has been read.
  std::string Beginning();
  // Reads the next line; returns false at the end. Blocking.
  // Errors: InvalidArgument for a line that is not UTF-8, with its number, for a stream that is bad(), for a line of
  // more than kMostLineBytes (runtime/text.h), and for what CheckIsPlainText rejects.
  absl::StatusOr<bool> Next(std::string& line);
  // As Next, but returns a line that is not UTF-8, too.
  absl::StatusOr<bool> NextUnchecked(std::string& line);
  // "NAME:LINE: not UTF-8 from byte …", or "" if `text` of the last line is UTF-8. `column`: 0 is the whole line.
  std::string Fault(std::string_view text, int column = 0) const;

  const std::string& name() const { return name_; }
  // Number of lines read so far, and the place of the last one, "NAME:LINE".
  int64_t lines() const { return lines_; }
  std::string Place() const;
  // What was removed so far.
  bool had_byte_order_mark() const { return had_byte_order_mark_; }
  int64_t carriage_returns() const { return carriage_returns_; }

 private:
  std::unique_ptr<std::istream> own_;  // null: another object's
  std::istream* in_;
  std::string name_;
  ByteOrderMark mark_;
  bool had_byte_order_mark_ = false;
  int64_t lines_ = 0, carriage_returns_ = 0;
};

// Serialises lists of token ids, so that rank 0 can tokenise a text and broadcast the ids. All ranks run one binary.
using TokenLists = std::vector<std::vector<int32_t>>;

std::string TokenListsToBytes(const TokenLists& lists);
// Errors: Internal if `bytes` are truncated.
absl::StatusOr<TokenLists> TokenListsFromBytes(std::string_view bytes);

}  // namespace hadal
