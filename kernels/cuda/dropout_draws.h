// Draws of counter-based dropout on the device: Philox4x32-10 for eight elements at a time, bit for bit DropoutFactor
// (runtime/random.h).
// Cost: a block of eight elements takes 80 to 100 instructions with ptxas of CUDA 13.0 for sm_80 and sm_90 (19 wide
// products, about as many three-input xors and additions of the key, 8 comparisons, selections and factors): 10 to 13
// per element. residual_norm.md compares this with the time for memory. One Philox block per element would take all
// issue slots of an H100, so a thread has eight elements and draws each block once.
#pragma once

#include <cstdint>

#include "kernels/cuda/dropout.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

// The eight draws of a block, two per word.
struct EightDraws {
  uint32_t word[4];
};

HADAL_DEVICE EightDraws DrawEight(const RandomPosition& at, uint32_t block, uint32_t site) {
  uint32_t c0 = block, c1 = site, c2 = at.micro_batch, c3 = at.step;
  uint32_t key0 = at.seed_low, key1 = at.seed_high;
  HADAL_UNROLL for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = MulWide(0xD2511F53u, c0), product1 = MulWide(0xCD9E8D57u, c2);
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Returns a mask with bit i set if element i of the block is kept.
HADAL_DEVICE uint32_t KeptBits(const EightDraws& draws, uint32_t threshold) {
  uint32_t kept = 0;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    if ((draws.word[i] & 0xFFFFu) >= threshold) kept |= 1u << (2 * i);
    if (draws.word[i] >> 16 >= threshold) kept |= 2u << (2 * i);
  }
  return kept;
}

// Multiplies elements first .. first + 7 of a packed tensor by their factors, 0 or scale. kAligned: first % 8 = 0; each
// draw is then compared in the upper half of its word, which takes fewer instructions than gathering bits.
template <bool kAligned>
HADAL_DEVICE void ApplyDropout(const DeviceDropout& dropout, const RandomPosition& at, uint64_t first, Eight& x) {
  const uint32_t block = static_cast<uint32_t>(first / 8);
  const EightDraws draws = DrawEight(at, block, dropout.site);
  if constexpr (kAligned) {
    const uint32_t threshold = dropout.threshold << 16;
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      const uint32_t even = draws.word[i] << 16, odd = draws.word[i];
      x.v[2 * i] = even >= threshold ? x.v[2 * i] * dropout.scale : 0.0f;
      x.v[2 * i + 1] = odd >= threshold ? x.v[2 * i + 1] * dropout.scale : 0.0f;
    }
  } else {
    const uint32_t next = KeptBits(DrawEight(at, block + 1, dropout.site), dropout.threshold);
    const uint32_t kept = (KeptBits(draws, dropout.threshold) | next << 8) >> (first % 8);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) x.v[i] = kept >> i & 1 ? x.v[i] * dropout.scale : 0.0f;
  }
}

}  // namespace hadal::cuda
