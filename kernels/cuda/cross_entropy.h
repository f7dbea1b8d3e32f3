// Cross-entropy with label smoothing on the device: the formulas of kernels/cross_entropy.h over logits of float or BFloat16.
//
// A block takes a row and streams over the vocabulary twice: maximum and sum of exponentials online, then the gradient in place (the
// second read comes from the L2 cache, which has room for the rows that are under way). Nothing else is stored.
// Numerics: fp32. A block has 256 threads, or 1,024 from 8,192 words on; a thread takes eight columns of every 2,048, or 8,192, in ascending
// order and rescales its sum once for the eight; the lanes of a warp meet as a butterfly, then the warps. Exponentials are exact to an ulp or two for float logits, ex2.approx for BFloat16 ones (far below their own
// rounding). A NaN in a row makes its loss, nll and gradient NaN. The same bits every time; no row sees another.
// gradient_scale is read from device memory (1 / target tokens of the step). REQUIRES: 0 ≤ target < V; a target of −1 marks a padding
// row: loss, nll and gradient 0. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

template <typename T>
struct CrossEntropyArgs {
  int64_t rows = 0, vocabulary = 0;           // R, V
  DeviceMatrix<T> logits;                     // [R, V]; overwritten by the gradient where gradient_scale is given
  DevicePointer<const int32_t> targets;       // [R]
  float label_smoothing = 0.0f;               // eps
  DevicePointer<const float> gradient_scale;  // one, or null: loss only
  DevicePointer<float> loss, nll;             // [R] (=)
};
template <typename T>
void CrossEntropy(StreamHandle stream, const CrossEntropyArgs<T>& args);

}  // namespace hadal::cuda
