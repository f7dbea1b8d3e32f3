#include "runtime/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hadal {
namespace {

// table[k][b]: the checksum of byte b followed by k zero bytes.
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = table[k - 1][byte];
      table[k][byte] = (previous >> 8) ^ table[0][previous & 0xFF];
    }
  }
  return table;
}

constexpr auto kTables = MakeTables();

uint64_t LoadLittleEndian(const std::byte* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  value = __builtin_bswap64(value);
#endif
  return value;
}

// Updates the state, without the inversions at both ends.
uint32_t UpdateByTable(uint32_t state, const std::byte* p, size_t bytes) {
  for (; bytes >= 8; p += 8, bytes -= 8) {
    const uint64_t word = LoadLittleEndian(p) ^ state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) state ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; bytes > 0; ++p, --bytes) state = (state >> 8) ^ kTables[0][(state ^ static_cast<uint32_t>(*p)) & 0xFF];
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t UpdateByInstruction(uint32_t state, const std::byte* p, size_t bytes) {
  uint64_t wide = state;
  for (; bytes >= 8; p += 8, bytes -= 8) wide = _mm_crc32_u64(wide, LoadLittleEndian(p));
  state = static_cast<uint32_t>(wide);
  for (; bytes > 0; ++p, --bytes) state = _mm_crc32_u8(state, static_cast<uint8_t>(*p));
  return state;
}
#endif

}  // namespace

uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~UpdateByInstruction(~crc, data.data(), data.size());
#endif
  return Crc32cPortable(data, crc);
}

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  return Crc32c(std::span(static_cast<const std::byte*>(data), bytes), crc);
}

uint32_t Crc32cPortable(std::span<const std::byte> data, uint32_t crc) {
  return ~UpdateByTable(~crc, data.data(), data.size());
}

}  // namespace hadal
