// Shift and scale by learned scalars on the device: kernels/shift_scale.h. x and y are <float, float>, <float,
// BFloat16> or <BFloat16, BFloat16>.
// Numerics: fp32. A block adds kShiftScaleRowBlock rows: thread t adds runs of eight columns t, t + 256, … in the
// order of rows, a warp is added as a butterfly, then warps in ascending order. Then one warp adds the blocks in
// double. The order depends only on the shape: deterministic. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/shift_scale.h"

namespace hadal::cuda {

void ShiftScaleForward(StreamHandle stream, const ShiftScaleForwardArgs& args);
void ShiftScaleBackward(StreamHandle stream, const ShiftScaleBackwardArgs& args);

}  // namespace hadal::cuda
