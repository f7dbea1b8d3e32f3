// Cross-entropy with label smoothing on the device: the formulas of kernels/cross_entropy.h over logits of float or
// BFloat16.
//
// A block computes a row and reads the vocabulary twice: maximum and sum of exponentials online, then the gradient in
// place. The second read should hit the L2 cache, which has room for the rows in progress. Nothing else is stored.
// Numerics: fp32. A block has 256 threads, or 1,024 for vocabularies of 8,192 and more. A thread adds eight columns of
// every 2,048 (or 8,192) in ascending order and rescales its sum once for the eight. The lanes of a warp are added as a
// butterfly, then the warps. Exponentials have an error of one or two ulp for float logits; for BFloat16 they are
// ex2.approx, whose error is far below the logits' rounding. A NaN in a row makes its loss, nll and gradient NaN.
// Deterministic; rows are independent.
// The gradient's scale is read from device_gradient_scale; null: loss only. REQUIRES: device_targets; there 0 ≤
// target < V, or −1 for a padding row, whose loss, nll and gradient are 0. Asynchronous.
#pragma once

#include "kernels/cross_entropy.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

void CrossEntropy(StreamHandle stream, const CrossEntropyArgs& args);

}  // namespace hadal::cuda
