// CRC-32C (Castagnoli): the checksum of corpus shards, checkpoints and TensorBoard records.
//
//   polynomial 0x1EDC6F41 (reflected 0x82F63B78), start and final value inverted: RFC 3720, appendix B.4.
// Detects every burst of up to 32 bits and every odd number of flipped bits. Does not protect against deliberate
// changes. Uses SSE4.2's crc32 instruction if the CPU has it, else tables (eight bytes per step); both return the same
// value. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hadal {

// Returns the checksum of `data`. To checksum data in pieces, pass the previous value:
//   Crc32c(ab) == Crc32c(b, Crc32c(a)).
uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc = 0);
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// As Crc32c, but uses tables on every CPU. For tests.
uint32_t Crc32cPortable(std::span<const std::byte> data, uint32_t crc = 0);

// TFRecord's masked form, for a checksum that is stored beside its data: rotated and offset, so that a checksum over
// both remains meaningful (LevelDB, log_format.md).
constexpr uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

}  // namespace hadal
