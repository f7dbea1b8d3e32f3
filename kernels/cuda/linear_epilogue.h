// Elementwise and reduction kernels that follow a linear layer's product on the device: bias, ReLU, dropout, the ReLU
// mask of the gradient, and the gradient of the bias. Bias and ReLU have kernels of their own for products whose
// library cannot fuse them (matmul.h), and for layers with another operation in between.
//
//   BiasRows      y[r, c] = relu(y[r, c] + bias[c])                         in place; relu is optional and keeps a NaN
//   DropoutRows   y[r, c] = factor(r·W + c) · y[r, c]                      in place; masks of runtime/random.h
//   ReluMask      dx[r, c] = y[r, c] > 0 ? dx[r, c] · mask_scale : 0        in place
//   ColumnSums    sums[c] += Σ_r x[r, c]
//   ReluMaskSums  ReluMask, and ColumnSums of the new dx, in one pass: the same bits
//
// T is the type of activations and their gradients, float or BFloat16; column sums are fp32.
// Numerics: fp32. A column's rows are divided into blocks of ColumnRowBlock(R, W). In a block warp w adds rows w, w +
// 8, … in ascending order; then warps are added in ascending order, then the blocks (column_merge.h). The order depends
// only on the shape of one matrix: deterministic. 16-byte accesses if every row is 16-byte aligned and the width is a
// multiple of 8. Asynchronous.
#pragma once

#include <vector>

#include "kernels/column_merge.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"

namespace hadal::cuda {

template <typename T>
struct BiasRowsArgs {
  int64_t rows = 0, width = 0;
  DevicePointer<const T> bias;  // [W], or null: none
  bool relu = false;
  DeviceMatrix<T> y;  // [R, W] in place
};
template <typename T>
void BiasRows(StreamHandle stream, const BiasRowsArgs<T>& args);

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

// Rows of a block: 32, so that 4,096 rows would keep a whole GPU busy; more if the blocks' sums would not fit into
// kColumnPartials floats of scratch.
inline constexpr int64_t kColumnPartials = int64_t{1} << 18;
constexpr int64_t ColumnRowBlock(int64_t rows, int64_t width) {
  const int64_t least = 32, most_blocks = width < kColumnPartials ? kColumnPartials / width : 1;
  return least * ((rows + least * most_blocks - 1) / (least * most_blocks));
}

template <typename T>
struct ColumnSumsArgs {
  int64_t rows = 0, width = 0;
  // x and sums are the first of `count` matrices and their sums, which lie at these distances, in elements. REQUIRES:
  // count = 1, or `later` is given.
  int64_t count = 1, x_step = 0, sums_step = 0;
  DeviceMatrix<const T> x;        // [R, W]
  DevicePointer<float> sums;      // [W] (+=)
  DevicePointer<float> partials;  // scratch [count · ⌈R / ColumnRowBlock⌉ · W]
};
// `later` (also of ReluMaskSums): receives the second stage instead of a launch (column_merge.h); or null.
template <typename T>
void ColumnSums(StreamHandle stream, const ColumnSumsArgs<T>& args, std::vector<ColumnMerge>* later = nullptr);

template <typename T>
struct ReluMaskSumsArgs {
  int64_t rows = 0, width = 0;
  DeviceMatrix<const T> relu_output;  // y [R, W]
  float mask_scale = 1.0f;
  DeviceMatrix<T> dx;             // [R, W] in place
  DevicePointer<float> sums;      // [W] (+=)
  DevicePointer<float> partials;  // scratch [⌈R / ColumnRowBlock⌉ · W]
};
template <typename T>
void ReluMaskSums(StreamHandle stream, const ReluMaskSumsArgs<T>& args, std::vector<ColumnMerge>* later = nullptr);

}  // namespace hadal::cuda
