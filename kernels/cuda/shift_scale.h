// Shift and scale by learned scalars on the device: kernels/shift_scale.h. x and y are <float, float>, <float,
// BFloat16> or <BFloat16, BFloat16>.
// Numerics: fp32. A block adds kShiftScaleRowBlock rows: a row is cut into runs of eight columns, and thread t adds
// runs t, t + 256, … of the first row, then of the next. A warp is added as a butterfly, then warps in ascending order.
// Then one warp adds the blocks in double. The order depends only on the shape: deterministic. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/shift_scale.h"

namespace hadal::cuda {

void ShiftScaleForward(StreamHandle stream, const ShiftScaleForwardArgs& args);
void ShiftScaleBackward(StreamHandle stream, const ShiftScaleBackwardArgs& args);

}  // namespace hadal::cuda
