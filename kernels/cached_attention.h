// One decoding step of attention against cached keys and values, for a batch of hypotheses.
//
// Row i asks with q[i]; it sees lengths[i] cached positions; the entry of position p lies in cache row
// index[i · index_stride + p] (beam search reorders this index, never the cache).
//   context[i, h] = Σ_p softmax_p(q[i,h]·key(p,h) / sqrt(D)) · value(p,h)
// Shapes: B hypotheses, H heads of width D; a cache row is [key (H·D) | value (H·D)].
// Numerics: fp32, positions in ascending order, one thread a row: a row's result does not depend on the other rows.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct CachedAttentionArgs {
  ConstMatrix q;          // [B, H·D]
  ConstMatrix cache;      // [cache rows, 2·H·D]
  ConstTokens index;      // [B · index_stride]
  int64_t index_stride = 0;
  ConstTokens lengths;    // [B], each ≥ 1
  int32_t heads = 1;
  Matrix context;         // [B, H·D] (=)
  Vector scratch;         // threads · index_stride floats
};
void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);

}  // namespace hadal
