#include "tools/corpus/text_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <ios>
#include <streambuf>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/bytes.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"

namespace hadal {
namespace {

// zlib passes a file that is not compressed with gzip on as it is; if that begins as zstd's do, it goes through zstd.
class DecompressingBuffer : public std::streambuf {
 public:
  explicit DecompressingBuffer(int file) : descriptor_(file), file_(gzdopen(file, "rb")) {}
  ~DecompressingBuffer() override { gzclose(file_); }

 protected:
  // A stream whose buffer throws becomes bad().
  int underflow() override {
    size_t bytes = zstd_ ? Decompress() : Read();
    if (first_ && std::string_view(buffer_.data(), bytes).starts_with(kZstdMagic)) {
      zstd_.reset(ZSTD_createDCtx());
      packed_.assign(buffer_.data(), bytes);
      rest_ = {.src = packed_.data(), .size = bytes, .pos = 0};
      bytes = Decompress();
    }
    first_ = false;
    if (bytes == 0) return traits_type::eof();
    setg(buffer_.data(), buffer_.data(), buffer_.data() + bytes);
    return traits_type::to_int_type(buffer_[0]);
  }

 private:
  static constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";

  // Whether the file is a pipe of uncompressed text. Waits for its first byte.
  bool IsPlainPipe() const {
    int copy[2];
    char byte = '\x1F';
    if (pipe2(copy, O_CLOEXEC) != 0) return false;
    const bool is_pipe = tee(descriptor_, copy[1], 1, 0) == 1 && read(copy[0], &byte, 1) == 1;
    for (const int end : copy) close(end);
    return is_pipe && byte != '\x1F';  // gzip's first
  }

  // Fills buffer_ from the file, or reads what a plain pipe has, for which gzread would wait; 0 at the end.
  size_t Read() {
    if (first_) plain_pipe_ = IsPlainPipe();
    const auto size = static_cast<unsigned>(buffer_.size());
    const int bytes =
        plain_pipe_ ? static_cast<int>(read(descriptor_, buffer_.data(), size)) : gzread(file_, buffer_.data(), size);
    int error = Z_OK;
    const char* message = gzerror(file_, &error);
    if (bytes < 0 || (bytes == 0 && error != Z_OK)) throw std::ios_base::failure(message);
    return static_cast<size_t>(bytes);
  }

  // Fills buffer_ with decompressed bytes; 0 at the end.
  size_t Decompress() {
    while (true) {
      if (rest_.pos == rest_.size) {
        const size_t bytes = Read();
        packed_.assign(buffer_.data(), bytes);
        rest_ = {.src = packed_.data(), .size = bytes, .pos = 0};
        if (bytes == 0 && within_frame_) throw std::ios_base::failure("the zstd data end early");
        if (bytes == 0) return 0;
      }
      ZSTD_outBuffer out{.dst = buffer_.data(), .size = buffer_.size(), .pos = 0};
      const size_t state = ZSTD_decompressStream(zstd_.get(), &out, &rest_);
      if (ZSTD_isError(state) != 0) throw std::ios_base::failure(ZSTD_getErrorName(state));
      within_frame_ = state != 0;
      if (out.pos > 0) return out.pos;
    }
  }

  int descriptor_;
  gzFile file_;
  std::array<char, size_t{1} << 16> buffer_;
  bool first_ = true, plain_pipe_ = false, within_frame_ = false;
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd_{nullptr, ZSTD_freeDCtx};
  std::string packed_;       // what was read last of a file of zstd's, and
  ZSTD_inBuffer rest_ = {};  // the part of it that is not decompressed
};

class TextStream : public std::istream {
 public:
  explicit TextStream(int file) : std::istream(nullptr), buffer_(file) { rdbuf(&buffer_); }

 private:
  DecompressingBuffer buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<std::istream>> OpenText(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts = {};
  if (file < 0 || fstat(file, &facts) != 0) return ErrnoStatus(errno, "open", path);
  if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode) && isatty(file) == 0) {
    close(file);
    return InvalidArgumentError(path, " is a folder or a device; give a file or a pipe of text");
  }
  return std::make_unique<TextStream>(file);
}

namespace {

// A kind of file, its first bytes, and the command that converts it to text.
struct FileKind {
  absl::string_view name, first_bytes, to_text;
};

constexpr FileKind kNotText[] = {
    {"compressed with gzip", "\x1F\x8B\x08", "gzip -dc"},
    {"compressed with bzip2", "BZh91AY&SY", "bzip2 -dc"},
    {"compressed with xz",
     "\xFD"
     "7zXZ",
     "xz -dc"},
    {"compressed with zstd", "\x28\xB5\x2F\xFD", "zstd -dc"},
    {"compressed with zip", "PK\x03\x04", "unzip -p"},
    {"a Parquet file", "PAR1\x15",
     "python3 -c 'import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.stdout, orient=\"records\", "
     "lines=True)'"},
    {"UTF-16", "\xFF\xFE", "iconv -f UTF-16 -t UTF-8"},
    {"UTF-16", "\xFE\xFF", "iconv -f UTF-16 -t UTF-8"},
};

}  // namespace

absl::Status CheckIsPlainText(const std::string& name, absl::string_view first_line, std::istream& rest) {
  const auto refuse = [&](absl::string_view what, absl::string_view remedy) {
    return InvalidArgumentError(name, " is ", what, remedy);
  };
  for (const FileKind& kind : kNotText) {
    if (!absl::StartsWith(first_line, kind.first_bytes)) continue;
    return refuse(kind.name, absl::StrCat("; UTF-8 text is needed: convert it with `", kind.to_text, " FILE > TEXT`"));
  }
  // Two characters of UTF-16 without a byte order mark.
  const auto is_zero = [&](size_t at) { return at < first_line.size() && first_line[at] == '\0'; };
  if (first_line.size() > 3 && is_zero(0) == is_zero(2) && is_zero(1) == is_zero(3) && is_zero(0) != is_zero(1)) {
    return refuse("UTF-16", absl::StrCat("; UTF-8 text is needed: convert it with `iconv -f UTF-16",
                                         is_zero(0) ? "BE" : "LE", " -t UTF-8 FILE > TEXT`"));
  }
  if (absl::StartsWith(first_line, "version https://git-lfs")) {
    return refuse("a pointer of Git LFS, not the file itself", "; `git lfs pull` fetches that");
  }
  const bool is_index = absl::StartsWith(first_line, "MMIDIDX") || absl::StartsWith(first_line, "TNTIDX");
  if (is_index || (absl::EndsWith(name, ".bin") && PathExists(name.substr(0, name.size() - 4) + ".idx"))) {
    return refuse("fairseq's binarised text",
                  "; give the text that fairseq-preprocess read (or print it with fairseq's "
                  "scripts/read_binarized.py), with --source-vocab and --target-vocab for its dict.txt files");
  }
  const bool is_declaration = absl::StartsWith(first_line, "<?xml") && absl::StrContains(first_line, "?>");
  const bool is_tmx = absl::StartsWith(absl::StripLeadingAsciiWhitespace(first_line), "<tmx") ||
                      (is_declaration && absl::StrContains(first_line.substr(0, 512), "<tmx"));
  if (is_tmx || (is_declaration && first_line.size() < 128)) {
    return refuse("XML; if it is TMX, which has both languages",
                  ", `hadal prepare --direction de-en --train FILE` reads it");
  }
  const size_t carriage_return = first_line.find('\r');
  if (carriage_return < first_line.size() - 1 && rest.peek() == std::istream::traits_type::eof()) {
    return refuse("text whose lines end in CR alone", "; convert it with `tr '\\r' '\\n' < FILE > TEXT`");
  }
  return absl::OkStatus();
}

std::string UnknownWarning(const char* side, int64_t unknown, int64_t tokens) {
  if (10 * unknown <= tokens) return "";
  return absl::StrCat(
      "warning: ", 100 * unknown / tokens, "% of the ", side,
      " tokens are unknown: is this the text's vocabulary, and is the text segmented as it was for that?\n");
}

int64_t TextBytes(std::span<const std::string> paths) {
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    std::error_code error;
    if (absl::EndsWith(path, ".gz") || absl::EndsWith(path, ".zst") || !std::filesystem::is_regular_file(path, error))
      return 0;
    const uintmax_t size = std::filesystem::file_size(path, error);
    if (error) return 0;
    bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

absl::StatusOr<TextLines> TextLines::Open(const std::string& path, ByteOrderMark mark) {
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<std::istream> in, OpenText(path));
  TextLines lines(*in, path, mark);
  lines.own_ = std::move(in);
  return lines;
}

std::string TextLines::Beginning() {
  constexpr std::streamsize kMost = 256;
  if (in_->peek() == std::istream::traits_type::eof()) in_->clear(in_->rdstate() & ~std::ios::eofbit);
  std::streambuf& buffer = *in_->rdbuf();
  std::string begin(std::clamp<std::streamsize>(buffer.in_avail(), 0, kMost), '\0');
  buffer.sgetn(begin.data(), std::ssize(begin));
  for (size_t i = begin.size(); i-- > 0;) buffer.sputbackc(begin[i]);
  return begin;
}

absl::StatusOr<bool> TextLines::NextUnchecked(std::string& line) {
  if (!ReadLine(*in_, line)) {
    if (in_->bad()) return ReadLineError(name_, lines_, line);
    return false;
  }
  ++lines_;
  if (lines_ == 1) HADAL_RETURN_IF_ERROR(CheckIsPlainText(name_, line, *in_));
  if (lines_ == 1 && mark_ == ByteOrderMark::kRemoved && line.starts_with(kByteOrderMark)) {
    line.erase(0, sizeof(kByteOrderMark) - 1);
    had_byte_order_mark_ = true;
  }
  if (line.ends_with('\r')) {
    line.pop_back();
    ++carriage_returns_;
  }
  return true;
}

absl::StatusOr<bool> TextLines::Next(std::string& line) {
  HADAL_ASSIGN_OR_RETURN(const bool more, NextUnchecked(line));
  const std::string fault = more ? Fault(line) : "";
  if (fault.empty()) return more;
  return absl::InvalidArgumentError(fault);
}

std::string TextLines::Fault(std::string_view text, int column) const {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return "";
  return absl::StrCat(Place(), ": not UTF-8 from byte ", valid + 1, " of ",
                      column == 0 ? "the line" : absl::StrCat("column ", column),
                      " on (convert it, for example with iconv)");
}

std::string TextLines::Place() const { return absl::StrCat(name_, ":", lines_); }

std::string TokenListsToBytes(const TokenLists& lists) {
  std::string bytes;
  AppendValue(uint64_t{lists.size()}, bytes);
  for (const std::vector<int32_t>& list : lists) AppendList(list, bytes);
  return bytes;
}

absl::StatusOr<TokenLists> TokenListsFromBytes(std::string_view bytes) {
  size_t count = 0;
  bool whole = TakeCount(bytes, sizeof(uint64_t), count);
  TokenLists lists(count);
  for (std::vector<int32_t>& list : lists) whole = whole && TakeList(bytes, list);
  if (whole && bytes.empty()) return lists;
  return InternalError("token lists are damaged; start every rank with the same binary");
}

}  // namespace hadal
