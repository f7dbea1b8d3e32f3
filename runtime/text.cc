#include "runtime/text.h"

#include <algorithm>
#include <array>
#include <ios>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Bytes of the valid character at the start of `text`, or 0.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  const uint8_t second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;  // a continuation byte, or overlong
  if (first < 0xE0) return continues(1) ? 2 : 0;
  if (first < 0xF0) {
    if (first == 0xE0 && second < 0xA0) return 0;   // overlong
    if (first == 0xED && second >= 0xA0) return 0;  // surrogate
    return continues(1) && continues(2) ? 3 : 0;
  }
  if (first > 0xF4) return 0;
  if (first == 0xF0 && second < 0x90) return 0;   // overlong
  if (first == 0xF4 && second >= 0x90) return 0;  // above U+10FFFF
  return continues(1) && continues(2) && continues(3) ? 4 : 0;
}

// Whether the valid text at `i` is a control character: ASCII's, or U+0080 to U+009F.
bool IsControl(std::string_view text, size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte == '\n' || byte == '\t') return false;
  if (byte < 0x20 || byte == 0x7F) return true;
  return byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
}

// Shortens long words.
std::string CutWords(std::string_view message) {
  constexpr size_t kLongestWord = 1000, kShownBytes = 100;
  std::string text;
  while (!message.empty()) {
    const size_t word = std::min(message.find_first_of(" \n"), message.size());
    if (word <= kLongestWord) {
      text += message.substr(0, word);
    } else {
      absl::StrAppend(&text, std::string(message.substr(0, kShownBytes)), "… (", word, " bytes)");
    }
    message.remove_prefix(word);
    const size_t space = std::min(message.find_first_not_of(" \n"), message.size());
    text += message.substr(0, space);
    message.remove_prefix(space);
  }
  return text;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const size_t bytes = CharacterBytes(text.substr(i));
    if (bytes == 0) break;
    i += bytes;
  }
  return i;
}

bool ReadLine(std::istream& in, std::string& line) {
  std::array<char, 4096> part;
  line.clear();
  while (line.size() <= kMostLineBytes) {
    in.getline(part.data(), part.size());
    const auto bytes = static_cast<size_t>(in.gcount());  // with the line end, if it was found
    if (in.bad()) return false;
    if (!in.fail() && !in.eof()) {
      line.append(part.data(), bytes - 1);
      return true;
    }
    line.append(part.data(), bytes);
    if (in.eof()) {
      if (!line.empty()) in.clear(std::ios_base::eofbit);
      return !line.empty();
    }
    in.clear();  // the part is full
  }
  in.setstate(std::ios_base::badbit);
  return false;
}

absl::Status ReadLineError(const std::string& name, int64_t lines, const std::string& line) {
  const std::string what = line.size() > kMostLineBytes
                               ? absl::StrCat("has more than ", kMostLineBytes, " bytes without a line end")
                               : "cannot be read";
  const bool returns = line.find('\r') != std::string::npos;
  return InvalidArgumentError(
      name, ":", lines + 1, ": ", what,
      returns ? "; do its lines end in CR alone? `tr '\\r' '\\n'` converts them" : "; is it whole, and text?");
}

std::string Printable(std::string_view text) {
  std::string printable;
  const auto escape = [&](char byte) {
    absl::StrAppendFormat(&printable, "\\x%02x", static_cast<unsigned char>(byte));
  };
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    for (size_t i = 0; i < valid; ++i) {
      if (!IsControl(text, i)) {
        printable += text[i];
        continue;
      }
      escape(text[i]);
      if (text[i] == '\xC2') escape(text[++i]);
    }
    if (valid < text.size()) escape(text[valid]);
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return printable;
}

std::string PrintableMessage(std::string_view message) {
  constexpr size_t kLongestLine = 1500, kFirstBytes = 1000, kLastBytes = 300;
  const std::string text = CutWords(Printable(message));  // escapes count
  std::string cut;
  for (size_t begin = 0; begin < text.size();) {
    const size_t line = std::min(text.find('\n', begin), text.size()) - begin;
    if (line <= kLongestLine) {
      cut += text.substr(begin, line);
    } else {
      absl::StrAppend(&cut, text.substr(begin, kFirstBytes), " … (", line, " bytes) … ",
                      text.substr(begin + line - kLastBytes, kLastBytes));
    }
    begin += line;
    if (begin < text.size()) cut += text[begin++];
  }
  return Printable(cut);  // a cut may be within a character
}

int PrintableBuffer::overflow(int byte) {
  if (byte == traits_type::eof()) return 0;
  line_ += static_cast<char>(byte);
  if (byte == '\n') {
    out_ << Printable(line_);
    line_.clear();
  }
  return out_.good() ? byte : traits_type::eof();
}

int PrintableBuffer::sync() {
  out_ << Printable(line_) << std::flush;
  line_.clear();
  return out_.good() ? 0 : -1;
}

}  // namespace hadal
