// DeviceDropout: the dropout parameters that a kernel takes as an argument. The masks are those of runtime/random.h;
// backward generates them again instead of storing them (dropout_draws.h).
//
// Seed, step and micro-batch (RandomPosition) are read from device memory, so that a captured graph can be replayed for
// another micro-batch.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_view.h"
#include "runtime/random.h"

namespace hadal::cuda {

using hadal::RandomPosition;  // changes between replays of a graph

struct DeviceDropout {
  DevicePointer<const RandomPosition> position;  // null: no dropout
  uint32_t site = 0;                             // word 1 of the counter (random.h), with key_block 0
  uint32_t threshold = 0;                        // an element is dropped if its 16-bit draw is below it
  float scale = 1.0f;                            // factor of a kept element

  HADAL_HOST_DEVICE bool active() const { return threshold != 0; }
};

// Returns the position of `dropout` in the run, to be copied to device memory.
inline RandomPosition PositionOf(const Dropout& dropout) {
  const RandomCounter& c = dropout.counter;
  return {static_cast<uint32_t>(c.seed), static_cast<uint32_t>(c.seed >> 32), c.micro_batch, c.step};
}

// Returns `dropout` as kernels take it. REQUIRES: device_position is set if dropout is active.
inline DeviceDropout DeviceDropoutOf(const Dropout& dropout) {
  if (!dropout.active()) return {};
  HADAL_CHECK(dropout.device_position != nullptr);
  return {dropout.device_position, dropout.counter.At(0)[1], dropout.threshold, dropout.scale()};
}

}  // namespace hadal::cuda
