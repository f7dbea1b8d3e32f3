// One decoding step of attention on cached keys and values, for a batch of hypotheses.
//
// Hypothesis i has the query q[i] and attends to lengths[i] cached positions. Its position p is the cache's row
// index[i · index_stride + p]. Beam search reorders the index, never the cache.
//   output[i, h] = Σ_p softmax_p(q[i,h]·key(p,h/G) / sqrt(D)) · value(p,h/G)
// h/G is rounded down. With rotary positions (rotary.h) the kernel turns q[i] when it reads it, at position
// lengths[i] − 1; the cached keys are already turned.
// With a sliding window (attention_reach.h) the sum begins at position max(0, lengths[i] − 1 − reach): earlier rows are
// not read.
// A step has one query per hypothesis, so the cost is one read of the cached rows; nothing is gathered or copied.
// Source: Vaswani et al. 2017 eq. 1.
// Shapes: B hypotheses, H heads of width D, K = H / G heads of keys; a cache row is [key (K·D) | value (K·D)].
// Storage: q, cache and output share one type, fp32 or on a device bf16.
// Numerics: fp32. On the CPU one thread computes a row, positions in ascending order; for a device see
// cuda/cached_attention.h. A row's result does not depend on other rows or on the place of its entries in the cache.
// REQUIRES: 1 ≤ lengths[i] ≤ index_stride; every index read is a cache row (aborts otherwise). Blocking on the CPU,
// asynchronous on a device; allocates nothing.
#pragma once

#include "kernels/attention_reach.h"
#include "kernels/rotary.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct CachedAttentionArgs {
  ConstAnyMatrix q;      // [B, H·D]
  ConstAnyMatrix cache;  // [cache rows, 2·K·D]
  ConstTokens index;     // [B · index_stride]
  int64_t index_stride = 0;
  ConstTokens lengths;  // [B]
  // On a device: copies of index and lengths that are already in device memory; both set or both null. Null: the kernel
  // copies the host's values first, which a capture does not allow (runtime/device.h). Null on the CPU. In every case
  // index and lengths are also given in host memory, for the checks.
  const int32_t* device_index = nullptr;
  const int32_t* device_lengths = nullptr;
  int32_t heads = 1;
  int32_t group = 1;               // G, divides H
  Rotary rotary;                   // empty, or a table with a row for each position
  int32_t reach = kWholeSentence;  // of the sliding window; REQUIRES: ≥ 0
  AnyMatrix output;                // [B, H·D] (=): written
  Vector scratch;                  // CachedAttentionScratch(...) floats; empty on a device
};
void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);

// Returns the floats of scratch on the CPU.
inline int64_t CachedAttentionScratch(const Stream& stream, int64_t index_stride, int64_t head_width) {
  return stream.threads() * (index_stride + head_width);
}

}  // namespace hadal
