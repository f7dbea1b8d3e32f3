// The draws of counted dropout on the device: Philox4x32-10 for eight elements at a time, bit for bit DropoutFactor (runtime/random.h).
//
// Cost of Philox4x32-10, counted before the kernels were laid out around it (a block serves 8 elements):
//   10 rounds × (2 wide products + 2 three-input xors) = 20 + 20, key schedule 20 (hoisted where a thread draws more than once),
//   8 draws × (extract, compare, select) = 24: 64 to 84 integer instructions a block, 8 to 10.5 an element; wide products may issue
//   at half rate, so count 13 issue slots of the integer pipe (64 lanes a clock and SM on sm_80 and sm_90).
//   residual_norm moves 8 bytes an element in bf16 (two read, two written): at full bandwidth an A100 (1.6 TB/s, 9.7 T slots/s) has
//   50 slots an element and an H200 (4.8 TB/s, 15 T slots/s) has 25. Philox takes a quarter of the one and half of the other, beside
//   the floating-point pipe. One block an element instead of one for eight would not fit: hence eight elements a thread.
#pragma once

#include <cstdint>

#include "kernels/cuda/dropout.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

// The eight draws of a block, two a word.
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

// Bit i: element i of the block is kept.
HADAL_DEVICE uint32_t KeptBits(const EightDraws& draws, uint32_t threshold) {
  uint32_t kept = 0;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    if ((draws.word[i] & 0xFFFFu) >= threshold) kept |= 1u << (2 * i);
    if (draws.word[i] >> 16 >= threshold) kept |= 2u << (2 * i);
  }
  return kept;
}

// Multiplies elements first .. first + 7 of a packed tensor by their factors, 0 or scale. With kAligned, first % 8 = 0.
template <bool kAligned>
HADAL_DEVICE void ApplyDropout(const DeviceDropout& dropout, const RandomPosition& at, uint64_t first, Eight& x) {
  const uint32_t shift = kAligned ? 0 : static_cast<uint32_t>(first % 8);
  const uint32_t block = static_cast<uint32_t>(first / 8);
  uint32_t kept = KeptBits(DrawEight(at, block, dropout.site), dropout.threshold);
  if (!kAligned) {
    const uint32_t next = KeptBits(DrawEight(at, block + 1, dropout.site), dropout.threshold);
    kept = (kept | next << 8) >> shift;
  }
  HADAL_UNROLL for (int i = 0; i < 8; ++i) x.v[i] = kept >> i & 1 ? x.v[i] * dropout.scale : 0.0f;
}

}  // namespace hadal::cuda
