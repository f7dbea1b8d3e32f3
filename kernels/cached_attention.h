// One decoding step of attention on cached keys and values, for a batch of hypotheses.
//
// Row i has the query q[i] and attends to lengths[i] cached positions. Position p is cache row index[i · index_stride +
// p]. Beam search reorders this index, never the cache.
//   output[i, h] = Σ_p softmax_p(q[i,h]·key(p,h) / sqrt(D)) · value(p,h)
// A step has one query per hypothesis, so the cost is one read of the cached rows; nothing is gathered or copied.
// Source: Vaswani et al. 2017 eq. 1.
// Shapes: B hypotheses, H heads of width D; a cache row is [key (H·D) | value (H·D)].
// Storage: q, cache and output share one type, fp32 or on a device bf16.
// Numerics: fp32. On the CPU one thread computes a row, positions in ascending order; for a device see
// cuda/cached_attention.h. A row's result does not depend on other rows or on the place of its entries in the cache.
// REQUIRES: 1 ≤ lengths[i] ≤ index_stride; every index read is a cache row (aborts otherwise). On the CPU blocking;
// allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct CachedAttentionArgs {
  ConstAnyMatrix q;      // [B, H·D]
  ConstAnyMatrix cache;  // [cache rows, 2·H·D]
  ConstTokens index;     // [B · index_stride]
  int64_t index_stride = 0;
  ConstTokens lengths;                    // [B], each ≥ 1
  const int32_t* device_index = nullptr;  // on a device: index and lengths in device memory; null: kernel arguments
  const int32_t* device_lengths = nullptr;
  int32_t heads = 1;
  AnyMatrix output;  // [B, H·D] (=): written
  Vector scratch;    // threads · index_stride floats; empty on a device
};
void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);

}  // namespace hadal
