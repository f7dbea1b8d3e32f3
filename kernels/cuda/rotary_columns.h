// Rotary positions on the device: the formulas of kernels/rotary.h, in fp32.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

// The columns c and c + h of a head after a rotation; Turned rotates them together.
struct TurnedPair {
  float low, high;
};
HADAL_DEVICE TurnedPair Turned(float low, float high, float cosine, float sine) {
  return {MulAdd(-high, sine, low * cosine), MulAdd(low, sine, high * cosine)};
}

// Returns column `column` of one head's row, whose value is x, rotated for `position`. Loads the pair's other column
// from `head`, the address of the head's column 0 in that row.
template <typename T>
HADAL_DEVICE float TurnedColumn(const DeviceRotary& rotary, DevicePointer<const T> head, int column, float x,
                                int64_t position) {
  if (column >= 2 * rotary.half) return x;
  const bool is_high = column >= rotary.half;
  const int c = is_high ? column - rotary.half : column;
  const float other = ToFloat(Load(head + (is_high ? c : c + rotary.half)));
  const DevicePointer<const float> angles = rotary.angles.row(position);
  const float cosine = Load(angles + c), sine = Load(angles + (rotary.half + c));
  return is_high ? Turned(other, x, cosine, sine).high : Turned(x, other, cosine, sine).low;
}

}  // namespace hadal::cuda
