// One decoding step of attention on cached keys and values, for a batch of hypotheses.
//
// Hypothesis i has the query q[i] and attends to lengths[i] cached positions. Its position p is the cache's row
// index[i · index_stride + p]. Beam search reorders the index, never the cache.
//   output[i, h] = Σ_p softmax_p(q[i,h]·key(p,h) / sqrt(D)) · value(p,h)
// A step has one query per hypothesis, so the cost is one read of the cached rows; nothing is gathered or copied.
// Source: Vaswani et al. 2017 eq. 1.
// Shapes: B hypotheses, H heads of width D; a cache row is [key (H·D) | value (H·D)].
// Storage: q, cache and output share one type, fp32 or on a device bf16.
// Numerics: fp32. On the CPU one thread computes a row, positions in ascending order; for a device see
// cuda/cached_attention.h. A row's result does not depend on other rows or on the place of its entries in the cache.
// REQUIRES: 1 ≤ lengths[i] ≤ index_stride; every index read is a cache row (aborts otherwise). Blocking on the CPU,
// asynchronous on a device; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct CachedAttentionArgs {
  ConstAnyMatrix q;      // [B, H·D]
  ConstAnyMatrix cache;  // [cache rows, 2·H·D]
  ConstTokens index;     // [B · index_stride]
  int64_t index_stride = 0;
  ConstTokens lengths;  // [B]
  // On a device: copies of index and lengths that are already in device memory; both set or both null. Null: the kernel
  // copies the host's values first, which a capture does not allow (runtime/device.h). Null on the CPU. In every case
  // index and lengths are also given in host memory, for the checks.
  const int32_t* device_index = nullptr;
  const int32_t* device_lengths = nullptr;
  int32_t heads = 1;
  AnyMatrix output;  // [B, H·D] (=): written
  Vector scratch;    // on the CPU stream.threads() · index_stride floats; empty on a device
};
void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);

}  // namespace hadal
