// Head scale on the device: the formulas of kernels/head_scale.h.
//
//   forward    y[r, h·D + j] = g[h]·x[r, h·D + j]
//   backward   d_gain[h] += Σ_r Σ_j dy·x, then dx = g·dy
//
// T is how x, y and their gradients are stored, float or BFloat16.
// Numerics: fp32. A block has one head. Thread t adds the head's elements t, t + 256, … in the order of rows; the lanes
// of a warp are added as a butterfly, then warps in ascending order. So the order depends only on the shape: the same
// bits every time. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

template <typename T>
struct HeadScaleArgs {
  int64_t rows = 0, heads = 1, head_width = 1;  // R, H, D
  DeviceMatrix<const T> x;                      // [R, H·D]
  DevicePointer<const float> gain;              // g [H]
  DeviceMatrix<T> y;                            // [R, H·D] (=); may alias x
};
template <typename T>
void HeadScale(StreamHandle stream, const HeadScaleArgs<T>& args);

template <typename T>
struct HeadScaleGainArgs {
  int64_t rows = 0, heads = 1, head_width = 1;
  DeviceMatrix<const T> dy, x;  // [R, H·D]
  DevicePointer<float> d_gain;  // [H] (+=)
};
template <typename T>
void HeadScaleGain(StreamHandle stream, const HeadScaleGainArgs<T>& args);

}  // namespace hadal::cuda
