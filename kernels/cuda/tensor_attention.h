// Attention on tensor cores. cuda::AttentionForward and AttentionBackward (attention.h) call it for BFloat16 if the
// head's width fits the tensor cores' tiles.
//
// Takes the arguments of the plain kernels and computes the same functions with the same dropout masks, but products
// have BFloat16 operands and fp32 sums; rotated queries and keys are rounded to BFloat16 after the rotation.
// Probabilities and their gradients are rounded to BFloat16 before they multiply values, keys and queries; a
// softmax's sum is over the values before rounding. d_q stays accurate where keys are alike: what rounding adds to
// the row sums of the scores' gradients is subtracted again (kernels/attention.md).
#pragma once

#include <type_traits>

#include "kernels/cuda/attention.h"

namespace hadal::cuda {

// Depends only on the stored type, the head's width and what turns: nothing or the whole head.
template <typename T>
constexpr bool OnTensorCores(int64_t head_width, int64_t half = 0) {
  return std::is_same_v<T, BFloat16> && (head_width == 32 || head_width == 64 || head_width == 128) &&
         (half == 0 || 2 * half == head_width);
}
template <typename T>
bool OnTensorCores(const AttentionShape& shape) {
  return OnTensorCores<T>(shape.head_width, shape.rotary.half);
}

// REQUIRES: OnTensorCores<BFloat16>(shape), strides below 2^26, and as in attention.h. Faster if rows of all
// matrices are 16-byte aligned.
void TensorAttentionForward(StreamHandle stream, const AttentionForwardArgs<BFloat16>& args);
// The backward pass is both, in this order: d_q with row_terms, then d_k and d_v. A batch whose list of tiles is empty
// has no rows, and nothing is written.
void TensorQueryGradient(StreamHandle stream, const AttentionBackwardArgs<BFloat16>& args);
void TensorKeyValueGradients(StreamHandle stream, const AttentionBackwardArgs<BFloat16>& args);

}  // namespace hadal::cuda
