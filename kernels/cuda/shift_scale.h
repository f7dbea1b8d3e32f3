// Shift and scale by learned scalars on the device: the formulas of kernels/shift_scale.h.
//
//   forward    y = g·(x − b)
//   backward   dx (+)= g·dy    d_b −= g·Σ dy    d_g += Σ dy·(x − b)
//
// X is the stored type of x and dx, Y that of y and dy: <float, float>, <float, BFloat16> and <BFloat16, BFloat16>
// exist.
// Numerics: fp32. A block adds kShiftScaleRowBlock rows: thread t adds runs of eight columns t, t + 256, … in the order
// of rows, a warp is added as a butterfly, then warps in ascending order. Then one warp adds the blocks in double. The
// order depends only on the shape: deterministic. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

// Rows of one partial sum.
inline constexpr int64_t kShiftScaleRowBlock = 32;

template <typename X, typename Y>
struct ShiftScaleForwardArgs {
  int64_t rows = 0, width = 1;              // R, W
  DeviceMatrix<const X> x;                  // [R, W]
  DevicePointer<const float> shift, scale;  // b [1], g [1] or null: 1
  DeviceMatrix<Y> y;                        // [R, W] (=); may alias x if X is Y
};
template <typename X, typename Y>
void ShiftScaleForward(StreamHandle stream, const ShiftScaleForwardArgs<X, Y>& args);

template <typename X, typename Y>
struct ShiftScaleBackwardArgs {
  int64_t rows = 0, width = 1;
  bool accumulate = false;  // dx += instead of dx =
  DeviceMatrix<const Y> dy;
  DeviceMatrix<const X> x;  // x of the forward; read with a scale, else may be null
  DevicePointer<const float> shift, scale;
  DeviceMatrix<X> dx;             // [R, W]; may alias dy if X is Y and accumulate is false
  DevicePointer<float> d_shift;   // [1] (+=)
  DevicePointer<float> d_scale;   // [1] (+=), with a scale
  DevicePointer<float> partials;  // scratch [2 · ⌈R / kShiftScaleRowBlock⌉]
};
template <typename X, typename Y>
void ShiftScaleBackward(StreamHandle stream, const ShiftScaleBackwardArgs<X, Y>& args);

}  // namespace hadal::cuda
