// Weighted sum of matrices by learned scalars on the device: the formulas of kernels/weighted_sum.h.
//
//   forward    y = Σ_{k<K} w_k·x_k, k ascending
//   backward   dx_k += w_k·dy    d_w_k += Σ dy·x_k
//
// T is the stored type of x, y and dy. The gradient of x has several readers that add to it, and is fp32 whatever T is.
// Numerics: fp32. A block adds kWeightedSumRowBlock rows of one term: thread t its runs of eight columns t, t + 256, … in the order of
// rows, a warp meets as a butterfly, warps in ascending order; then a thread a term adds its blocks in ascending order, in double: the
// same bits every time. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

// Rows of one partial sum.
inline constexpr int64_t kWeightedSumRowBlock = 32;

template <typename T>
struct WeightedSumForwardArgs {
  int64_t rows = 0, width = 1, terms = 1;  // R, W, K
  DeviceMatrix<const T> x;                 // [K·R, W], x_k in rows [k·R, (k + 1)·R)
  DevicePointer<const float> weights;      // w [K]
  DeviceMatrix<T> y;                       // [R, W] (=)
};
template <typename T>
void WeightedSumForward(StreamHandle stream, const WeightedSumForwardArgs<T>& args);

// REQUIRES: K ≤ 65,535.
template <typename T>
struct WeightedSumBackwardArgs {
  int64_t rows = 0, width = 1, terms = 1;
  DeviceMatrix<const T> dy, x;         // [R, W], [K·R, W]
  DevicePointer<const float> weights;  // w [K]
  DeviceMatrix<float> dx;              // [K·R, W] (+=)
  DevicePointer<float> d_weights;      // [K] (+=)
  DevicePointer<float> partials;       // scratch [⌈R / kWeightedSumRowBlock⌉ · K]
};
template <typename T>
void WeightedSumBackward(StreamHandle stream, const WeightedSumBackwardArgs<T>& args);

}  // namespace hadal::cuda
