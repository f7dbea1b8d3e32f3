#include "runtime/data/tokenize_13a.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace hadal {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsPeriodOrComma(char c) { return c == '.' || c == ','; }

// Rule 2's set: the space and all ASCII punctuation except . , - '
bool IsSetOff(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Bytes of the white-space character at the start of `text`, or 0. The set is that of Python's str.isspace: Unicode's
// bidirectional types WS, B, S and category Zs.
size_t LeadingSpaceBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80)
    return first == 0x20 || (first >= 0x09 && first <= 0x0D) || (first >= 0x1C && first <= 0x1F) ? 1 : 0;
  if (first == 0xC2) return byte(1) == 0x85 || byte(1) == 0xA0 ? 2 : 0;  // U+0085 U+00A0
  if (first == 0xE1) return byte(1) == 0x9A && byte(2) == 0x80 ? 3 : 0;  // U+1680
  if (first == 0xE3) return byte(1) == 0x80 && byte(2) == 0x80 ? 3 : 0;  // U+3000
  if (first != 0xE2) return 0;
  const uint8_t last = byte(2);
  if (byte(1) == 0x81) return last == 0x9F ? 3 : 0;  // U+205F
  if (byte(1) != 0x80) return 0;
  return (last >= 0x80 && last <= 0x8A) || last == 0xA8 || last == 0xA9 || last == 0xAF
             ? 3
             : 0;  // U+2000-200A 2028 2029 202F
}

// Rule 1.
std::string Normalize(std::string_view text) {
  std::string line(text);
  const auto replace = [&line](std::string_view from, std::string_view to) {
    absl::StrReplaceAll({{absl::string_view(from.data(), from.size()), absl::string_view(to.data(), to.size())}},
                        &line);
  };
  replace("<skipped>", "");
  replace("-\n", "");
  replace("\n", " ");
  if (line.find('&') == std::string::npos) return line;
  replace("&quot;", "\"");
  replace("&amp;", "&");
  replace("&lt;", "<");
  replace("&gt;", ">");
  return line;
}

// Rule 2.
std::string SetOffPunctuation(std::string_view in) {
  std::string out;
  out.reserve(in.size() * 2);
  for (const char c : in) {
    if (IsSetOff(c)) {
      out += ' ';
      out += c;
      out += ' ';
    } else {
      out += c;
    }
  }
  return out;
}

// Copies `in`. Where `first(in[i]) && second(in[i + 1])` holds, writes the pair with the given spaces around its parts
// and continues after it. Working on bytes is exact: no byte of a multi-byte character is a digit, a period, a comma or
// a dash.
template <typename First, typename Second>
std::string SetOffPairs(std::string_view in, First first, Second second, std::string_view before,
                        std::string_view between, std::string_view after) {
  std::string out;
  out.reserve(in.size() + in.size() / 4);
  for (size_t i = 0; i < in.size(); ++i) {
    if (i + 1 < in.size() && first(in[i]) && second(in[i + 1])) {
      out += before;
      out += in[i];
      out += between;
      out += in[++i];
      out += after;
    } else {
      out += in[i];
    }
  }
  return out;
}

std::vector<std::string> SplitAtSpace(std::string_view text) {
  std::vector<std::string> tokens;
  size_t start = 0;
  size_t i = 0;
  while (i < text.size()) {
    const size_t space = LeadingSpaceBytes(text.substr(i));
    if (space == 0) {
      ++i;
      continue;
    }
    if (i > start) tokens.emplace_back(text.substr(start, i - start));
    i += space;
    start = i;
  }
  if (text.size() > start) tokens.emplace_back(text.substr(start));
  return tokens;
}

}  // namespace

std::string_view StripTrailingSpace(std::string_view text) {
  while (!text.empty()) {
    size_t bytes = 0;
    for (const size_t length : {1, 2, 3}) {
      if (length <= text.size() && LeadingSpaceBytes(text.substr(text.size() - length)) == length) bytes = length;
    }
    if (bytes == 0) break;
    text.remove_suffix(bytes);
  }
  return text;
}

std::vector<std::string> Tokenize13a(std::string_view text) {
  const auto not_digit = [](char c) { return !IsDigit(c); };
  std::string line = absl::StrCat(" ", Normalize(StripTrailingSpace(text)), " ");
  line = SetOffPunctuation(line);
  line = SetOffPairs(line, not_digit, IsPeriodOrComma, "", " ", " ");
  line = SetOffPairs(line, IsPeriodOrComma, not_digit, " ", " ", "");
  line = SetOffPairs(
      line, IsDigit, [](char c) { return c == '-'; }, "", " ", " ");
  return SplitAtSpace(line);
}

}  // namespace hadal
