#include "runtime/data/unicode_text.h"

#include <algorithm>
#include <array>

namespace hadal {
namespace {

// In characters. Thai segmented into words has about four, Chinese and Japanese two.
constexpr int64_t kLongestMeanWord = 5;

struct Range {
  uint32_t first = 0, last = 0;
};
constexpr std::array<Range, 8> kUnspaced = {{{0x0E00, 0x0EFF},      // Thai, Lao
                                             {0x1000, 0x109F},      // Burmese
                                             {0x1780, 0x17FF},      // Khmer
                                             {0x3040, 0x30FF},      // Hiragana, Katakana
                                             {0x3400, 0x4DBF},      // Han
                                             {0x4E00, 0x9FFF},      // Han
                                             {0xF900, 0xFAFF},      // Han
                                             {0x20000, 0x3FFFF}}};  // Han

bool IsOfUnspacedScript(uint32_t character) {
  return std::ranges::any_of(kUnspaced,
                             [&](const Range& range) { return character >= range.first && character <= range.last; });
}

bool IsSpace(uint32_t character) { return character <= ' ' || character == 0x3000; }

}  // namespace

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
  const bool space = (last >= 0x80 && last <= 0x8A) || last == 0xA8 || last == 0xA9 || last == 0xAF;
  return space ? 3 : 0;  // U+2000-200A 2028 2029 202F
}

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

std::vector<std::string_view> SplitAtSpace(std::string_view text) {
  std::vector<std::string_view> tokens;
  size_t start = 0;
  size_t i = 0;
  while (i < text.size()) {
    const size_t space = LeadingSpaceBytes(text.substr(i));
    if (space == 0) {
      ++i;
      continue;
    }
    if (i > start) tokens.push_back(text.substr(start, i - start));
    i += space;
    start = i;
  }
  if (text.size() > start) tokens.push_back(text.substr(start));
  return tokens;
}

uint32_t TakeCharacter(std::string_view& text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  uint32_t character = wanted == 1 ? first : first & (0xFFu >> (wanted + 1));
  size_t bytes = 1;
  for (; bytes < wanted && bytes < text.size() && (static_cast<uint8_t>(text[bytes]) & 0xC0u) == 0x80u; ++bytes) {
    character = (character << 6) | (static_cast<uint8_t>(text[bytes]) & 0x3Fu);
  }
  text.remove_prefix(bytes == wanted ? bytes : 1);
  return bytes == wanted ? character : first;
}

bool IsUnspaced(absl::Span<const std::string> lines) {
  int64_t characters = 0, unspaced = 0, words = 0;
  for (std::string_view line : lines) {
    bool in_word = false;
    while (!line.empty()) {
      const uint32_t character = TakeCharacter(line);
      const bool space = IsSpace(character);
      words += !space && !in_word ? 1 : 0;
      characters += space ? 0 : 1;
      unspaced += IsOfUnspacedScript(character) ? 1 : 0;
      in_word = !space;
    }
  }
  return 2 * unspaced > characters && characters > kLongestMeanWord * words;
}

}  // namespace hadal
