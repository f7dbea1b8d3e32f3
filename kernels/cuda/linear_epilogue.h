// What stands beside a linear layer's product on the device: dropout behind it, the ReLU's mask in front of its gradient, and the bias's
// gradient. (Bias and ReLU of the forward ride on the product, matmul.h.)
//
//   DropoutRows   y[r, c] = factor(r·W + c) · y[r, c]                      in place; masks of runtime/random.h
//   ReluMask      dx[r, c] = y[r, c] > 0 ? dx[r, c] · mask_scale : 0        in place
//   ColumnSums    sums[c] += Σ_r x[r, c]
//
// T is how activations and their gradients are stored, float or BFloat16; sums of columns are fp32.
// Numerics: fp32. A column's rows are cut into kColumnRuns runs of equal length; a thread adds a run in ascending order, runs meet in
// ascending order: a function of the shape alone, the same bits every time. 16-byte accesses where every row starts on 16 bytes and the
// width is a multiple of 8. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"

namespace hadal::cuda {

template <typename T>
struct DropoutRowsArgs {
  int64_t rows = 0, width = 0;
  DeviceDropout dropout;
  DeviceMatrix<T> y;  // [R, W] in place
};
template <typename T>
void DropoutRows(StreamHandle stream, const DropoutRowsArgs<T>& args);

template <typename T>
struct ReluMaskArgs {
  int64_t rows = 0, width = 0;
  DeviceMatrix<const T> relu_output;  // y [R, W]
  float mask_scale = 1.0f;
  DeviceMatrix<T> dx;  // [R, W] in place
};
template <typename T>
void ReluMask(StreamHandle stream, const ReluMaskArgs<T>& args);

inline constexpr int kColumnRuns = 16;

template <typename T>
struct ColumnSumsArgs {
  int64_t rows = 0, width = 0;
  DeviceMatrix<const T> x;    // [R, W]
  DevicePointer<float> sums;  // [W] (+=)
};
template <typename T>
void ColumnSums(StreamHandle stream, const ColumnSumsArgs<T>& args);

}  // namespace hadal::cuda
