#include "runtime/printable.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/utf8.h"

namespace hadal {
namespace {

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
