#include "runtime/data/unspaced_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/data/unicode_text.h"

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
