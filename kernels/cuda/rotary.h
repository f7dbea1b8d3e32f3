// Rotary positions on the device, as kernels' arguments; rotary_columns.h turns with them.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_view.h"
#include "kernels/rotary.h"
#include "runtime/check.h"

namespace hadal::cuda {

struct DeviceRotary {
  DeviceMatrix<const float> angles;  // [positions, 2h]: cosines, then sines
  int32_t half = 0;                  // h; 0: nothing turns
};
inline DeviceRotary DeviceRotaryOf(const Rotary& rotary) {
  HADAL_CHECK_EQ(rotary.table.stride, rotary.table.columns);
  return {rotary.table, static_cast<int32_t>(rotary.half())};
}

}  // namespace hadal::cuda
