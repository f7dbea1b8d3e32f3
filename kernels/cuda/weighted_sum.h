// Weighted sum of matrices by learned scalars on the device: kernels/weighted_sum.h. x and y are <float, float>,
// <float, BFloat16> or <BFloat16, BFloat16>.
// Numerics: fp32. A block adds kWeightedSumRowBlock rows of one term: thread t adds runs of eight columns t, t + 256, …
// in the order of rows, a warp is added as a butterfly, then warps in ascending order. Then one thread per term adds
// the term's blocks in ascending order, in double. Deterministic. REQUIRES: K ≤ 65,535. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/weighted_sum.h"

namespace hadal::cuda {

void WeightedSumForward(StreamHandle stream, const WeightedSumForwardArgs& args);
void WeightedSumBackward(StreamHandle stream, const WeightedSumBackwardArgs& args);

}  // namespace hadal::cuda
