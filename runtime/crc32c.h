// CRC-32C (Castagnoli): the checksum of corpus shards, checkpoints and TensorBoard records.
//
//   polynomial 0x1EDC6F41 (reflected 0x82F63B78), start and final value inverted: RFC 3720, appendix B.4.
// Finds every burst of up to 32 bits and every odd number of flipped bits. It is no defence against an adversary, who
// can recompute it. Uses SSE4.2's crc32 instruction where the CPU has it, else tables of eight bytes a step; both give
// the same value. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hadal {

// The checksum of `data`. To checksum in pieces, pass the value of the pieces before:
//   Crc32c(ab) == Crc32c(b, Crc32c(a)).
uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc = 0);
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// The table form on every CPU. For tests; the functions above choose by themselves.
uint32_t Crc32cPortable(std::span<const std::byte> data, uint32_t crc = 0);

// TFRecord's masked form. A checksum stored beside its data is rotated and offset, so that a checksum over both stays
// meaningful (LevelDB, log_format.md).
constexpr uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

}  // namespace hadal
