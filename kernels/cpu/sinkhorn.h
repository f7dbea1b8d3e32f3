// Sinkhorn's normalisation of a small matrix (kernels/hyper_connection.h): e^logits, then kSinkhornRounds times
// columns, then rows, each divided by its sum. Every row of the result sums to 1, every column almost.
//
// Backward computes the forward again and keeps the matrix after each of its steps on the stack.
// Numerics: fp32, sums ascending. Thread safety: pure.
#pragma once

#include <cstdint>

namespace hadal::cpu {

inline constexpr int64_t kSinkhornRounds = 20;

// logits, result [n, n] by rows; n ≤ kMostStreams.
void SinkhornForward(int64_t n, const float* logits, float* result);
// d_logits (=); may be d_result.
void SinkhornBackward(int64_t n, const float* logits, const float* d_result, float* d_logits);

}  // namespace hadal::cpu
