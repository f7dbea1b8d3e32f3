// Element types of stored activations and weights: fp32 or bf16 (the upper half of a float: the same range, eight
// bits of precision). kPanels: a weight of fp32 in the order in which a CPU's products read it (PackWeight in
// kernels/linear.h); its shape and number of bytes are those of kFloat32, and only LinearForward takes it.
//
// Rounding is to nearest, ties to even. A NaN becomes the quiet NaN 0x7FFF, as in hardware.
// Thread safety: plain values.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace hadal {

struct BFloat16 {
  uint16_t bits = 0;
};

enum class Storage : int32_t { kFloat32, kBFloat16, kPanels };

constexpr int64_t BytesOf(Storage storage) { return storage == Storage::kBFloat16 ? 2 : 4; }

template <typename T>
requires(std::is_same_v<T, float> ||
         std::is_same_v<T, BFloat16>) inline constexpr Storage kStorageOf = std::is_same_v<T, float>
                                                                                ? Storage::kFloat32
                                                                                : Storage::kBFloat16;

inline float Widened(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

inline BFloat16 RoundedToBFloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return {0x7FFF};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

}  // namespace hadal
