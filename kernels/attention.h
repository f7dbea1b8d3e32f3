// Multi-head scaled dot-product attention over packed sentences, without a score tensor in memory.
//
// For each sentence n and head h, with queries Q = q[query rows of n, h·D .. h·D+D) and keys, values alike:
//   P = softmax(Q·Kᵀ / sqrt(D) + mask)      context = dropout(P)·V
// mask: none, or causal (key position ≤ query position; then queries and keys are the same sentences).
// Source: Vaswani et al. 2017 eq. 1; backward recomputes P from the saved log-sum-exp (FlashAttention, arXiv 2205.14135).
// Shapes: Rq packed query rows, Rk packed key rows, H heads of width D (H·D columns). q, k, v may be column ranges of one
// fused matrix: their strides are free. offsets[n] .. offsets[n+1] are the rows of sentence n.
// Numerics: fp32; each (sentence, head) is one thread's work from start to end, keys in ascending order, query tiles in
// ascending order: no thread count and no neighbour changes a bit.
// Dropout: see random.h (query row is the packed row). Blocking; scratch comes from the caller.
#pragma once

#include "runtime/random.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct AttentionShape {
  ConstTokens query_offsets;  // [sentences + 1], first 0
  ConstTokens key_offsets;    // [sentences + 1], first 0
  int32_t heads = 1;          // H
  bool causal = false;        // REQUIRES: equal query and key offsets
};

struct AttentionForwardArgs {
  AttentionShape shape;
  ConstMatrix q;            // [Rq, H·D]
  ConstMatrix k, v;         // [Rk, H·D]
  Dropout dropout;          // on the probabilities
  Matrix context;           // [Rq, H·D] (=)
  Matrix log_sum_exp;       // [Rq, H]   (=) of the scaled scores, kept for backward
  Vector scratch;           // AttentionScratch(...) floats
};
void AttentionForward(const Stream& stream, const AttentionForwardArgs& args);

struct AttentionBackwardArgs {
  AttentionShape shape;
  ConstMatrix q, k, v;      // as in forward
  ConstMatrix log_sum_exp;  // [Rq, H]
  ConstMatrix d_context;    // [Rq, H·D]
  Dropout dropout;
  Matrix d_q;               // [Rq, H·D] (=)
  Matrix d_k, d_v;          // [Rk, H·D] (=)
  Vector scratch;
};
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args);

// Floats of scratch for forward or backward when no sentence has more than `max_length` rows on either side.
int64_t AttentionScratch(const Stream& stream, int64_t max_length, int64_t head_width);

}  // namespace hadal
