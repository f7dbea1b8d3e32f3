// The scalar definition of the mask of attention probabilities; runtime/random.h has the blocks.
#pragma once

#include "runtime/random.h"

namespace hadal {

// 0 or dropout.scale(). `query_row` counts packed rows.
inline float AttentionDropoutFactor(const Dropout& dropout, uint64_t query_row, uint32_t heads, uint32_t head,
                                    uint32_t key) {
  if (!dropout.active()) return 1.0f;
  const PhiloxCounter counter = dropout.counter.At(static_cast<uint32_t>(query_row * heads + head), key / 8);
  const uint32_t word = Philox4x32(dropout.counter.seed, counter)[key % 8 / 2];
  return (word >> (16 * (key % 2)) & 0xFFFF) < dropout.threshold ? 0.0f : dropout.scale();
}

}  // namespace hadal
