#include "runtime/utf8.h"

#include <cstdint>

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

}  // namespace hadal
