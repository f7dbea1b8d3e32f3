#include "runtime/data/bleu_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/data/unicode_text.h"

namespace hadal {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsPeriodOrComma(char c) { return c == '.' || c == ','; }

// Rule 2's set: the space and all ASCII punctuation except . , - '
bool IsSetOff(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
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

// Rules 2 to 5.
std::vector<std::string> SplitWestern(std::string line) {
  const auto not_digit = [](char c) { return !IsDigit(c); };
  line = SetOffPunctuation(line);
  line = SetOffPairs(line, not_digit, IsPeriodOrComma, "", " ", " ");
  line = SetOffPairs(line, IsPeriodOrComma, not_digit, " ", " ", "");
  line = SetOffPairs(
      line, IsDigit, [](char c) { return c == '-'; }, "", " ", " ");
  const std::vector<std::string_view> tokens = SplitAtSpace(line);
  return {tokens.begin(), tokens.end()};
}

struct Range {
  uint32_t first = 0, last = 0;
};
constexpr Range kChinese[] = {{0x2001, 0x2A6D}, {0x2E80, 0x2FDF}, {0x2FF0, 0x303F}, {0x3100, 0x312F}, {0x31A0, 0x31BF},
                              {0x31C0, 0x31EF}, {0x3200, 0x33FF}, {0x3400, 0x4DB5}, {0x4E00, 0x9FBB}, {0xF900, 0xFA2D},
                              {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0xFF00, 0xFFEF}};

bool IsChinese(uint32_t character) {
  return std::ranges::any_of(kChinese,
                             [&](const Range& range) { return character >= range.first && character <= range.last; });
}

// Calls `take(character, its bytes)` for every character of `text`.
template <typename Take>
void ForEachCharacter(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::string_view from = text;
    const uint32_t character = TakeCharacter(text);
    take(character, from.substr(0, from.size() - text.size()));
  }
}

std::vector<std::string> Tokenize13a(std::string_view text) {
  return SplitWestern(absl::StrCat(" ", Normalize(StripTrailingSpace(text)), " "));
}

std::vector<std::string> TokenizeChar(std::string_view text) {
  std::vector<std::string> tokens;
  ForEachCharacter(text, [&](uint32_t, std::string_view bytes) {
    if (LeadingSpaceBytes(bytes) == 0) tokens.emplace_back(bytes);
  });
  return tokens;
}

std::vector<std::string> TokenizeZh(std::string_view text) {
  text = StripTrailingSpace(text);
  while (const size_t bytes = LeadingSpaceBytes(text)) text.remove_prefix(bytes);
  std::string line;
  ForEachCharacter(text, [&](uint32_t character, std::string_view bytes) {
    const char* const around = IsChinese(character) ? " " : "";
    absl::StrAppend(&line, around, absl::string_view(bytes.data(), bytes.size()), around);
  });
  return SplitWestern(std::move(line));
}

}  // namespace

BleuTokenizer BleuTokenizerOf(std::string_view language) {
  const std::string code = absl::AsciiStrToLower(std::string(language.substr(0, language.find('_'))));
  for (const std::string_view chinese : {"zh", "zho", "chi", "cmn", "yue", "wuu"}) {
    if (code == chinese) return BleuTokenizer::kZh;
  }
  for (const std::string_view unspaced : {"ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo",
                                          "bod", "tib", "dz", "dzo", "shn"}) {
    if (code == unspaced) return BleuTokenizer::kChar;
  }
  return BleuTokenizer::k13a;
}

std::vector<std::string> TokenizeForBleu(BleuTokenizer tokenizer, std::string_view text) {
  switch (tokenizer) {
    case BleuTokenizer::kChar:
      return TokenizeChar(text);
    case BleuTokenizer::kZh:
      return TokenizeZh(text);
    case BleuTokenizer::k13a:
      break;
  }
  return Tokenize13a(text);
}

}  // namespace hadal
