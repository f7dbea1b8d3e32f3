// Weighted sum of matrices by learned scalars on the device: the formulas of kernels/weighted_sum.h.
//
//   forward    y = Σ_{k<K} w_k·x_k, k ascending
//   backward   dx_k += w_k·dy    d_w_k += Σ dy·x_k
//
// X is the stored type of x and dy, Y that of y: <float, float>, <float, BFloat16> and <BFloat16, BFloat16> exist. x's
// gradient is always fp32, because several readers add to it.
// Numerics: fp32. A block adds kWeightedSumRowBlock rows of one term: thread t adds runs of eight columns t, t + 256, …
// in the order of rows, a warp is added as a butterfly, then warps in ascending order. Then one thread per term adds
// the term's blocks in ascending order, in double. Deterministic. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

// Rows of one partial sum.
inline constexpr int64_t kWeightedSumRowBlock = 32;

template <typename X, typename Y>
struct WeightedSumForwardArgs {
  int64_t rows = 0, width = 1, terms = 1;  // R, W, K
  DeviceMatrix<const X> x;                 // [K·R, W], x_k in rows [k·R, (k + 1)·R)
  DevicePointer<const float> weights;      // w [K]
  DeviceMatrix<Y> y;                       // [R, W] (=)
};
template <typename X, typename Y>
void WeightedSumForward(StreamHandle stream, const WeightedSumForwardArgs<X, Y>& args);

// REQUIRES: K ≤ 65,535.
template <typename X>
struct WeightedSumBackwardArgs {
  int64_t rows = 0, width = 1, terms = 1;
  DeviceMatrix<const X> dy, x;         // [R, W], [K·R, W]
  DevicePointer<const float> weights;  // w [K]
  DeviceMatrix<float> dx;              // [K·R, W] (+=)
  DevicePointer<float> d_weights;      // [K] (+=)
  DevicePointer<float> partials;       // scratch [⌈R / kWeightedSumRowBlock⌉ · K]
};
template <typename X>
void WeightedSumBackward(StreamHandle stream, const WeightedSumBackwardArgs<X>& args);

}  // namespace hadal::cuda
