// Head scale on the device: the formulas of kernels/head_scale.h.
//
//   forward    y[r, h·D + j] = g[h]·x[r, h·D + j]
//   backward   dx = g·dy, and in the same pass over dy d_gain[h] += Σ_r Σ_j dy·x
//
// T is the type of x, y and their gradients, float or BFloat16.
// Numerics: fp32. A head's sum runs over blocks of kHeadScaleRowBlock rows. In a block thread t adds eights of columns
// t, t + 256, … in the order of rows; the lanes of a warp are added as a butterfly, then warps in ascending order. One
// warp per head adds the blocks: lane l adds blocks l, l + 32, …, then the lanes are added as a butterfly. The order
// depends only on the shape: deterministic. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

inline constexpr int64_t kHeadScaleRowBlock = 32;

template <typename T>
struct HeadScaleForwardArgs {
  int64_t rows = 0, heads = 1, head_width = 1;  // R, H, D
  DeviceMatrix<const T> x;                      // [R, H·D]
  DevicePointer<const float> gain;              // g [H]
  DeviceMatrix<T> y;                            // [R, H·D] (=); may alias x
};
template <typename T>
void HeadScaleForward(StreamHandle stream, const HeadScaleForwardArgs<T>& args);

template <typename T>
struct HeadScaleBackwardArgs {
  int64_t rows = 0, heads = 1, head_width = 1;
  DeviceMatrix<const T> dy, x;      // [R, H·D]
  DevicePointer<const float> gain;  // [H]
  DeviceMatrix<T> dx;               // [R, H·D] (=); may alias dy
  DevicePointer<float> d_gain;      // [H] (+=)
  DevicePointer<float> partials;    // scratch [⌈R / kHeadScaleRowBlock⌉ · H]
};
template <typename T>
void HeadScaleBackward(StreamHandle stream, const HeadScaleBackwardArgs<T>& args);

}  // namespace hadal::cuda
