// One decoding step of attention on the device: the formula and shapes of kernels/cached_attention.h.
//
// A block has a head of a row. It takes the cached positions 128 at a time: a thread has a position's score, then a column of the values; the
// softmax is rescaled from one 128 to the next.
// Numerics: fp32, however q, cache and context are stored. A score adds the columns in ascending order; the sum of a 128's exponentials meets as a butterfly in each warp, then by warps;
// a column adds positions in ascending order. A function of the row alone: the same bits for every batch. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

inline constexpr int64_t kWidestCachedHead = 128;

template <typename T>
struct CachedAttentionArgs {
  int64_t rows = 0, heads = 1, head_width = 1;  // B, H, D ≤ kWidestCachedHead
  DeviceMatrix<const T> q;                      // [B, H·D]
  DeviceMatrix<const T> cache;                  // [cache rows, 2·H·D]: key, value
  DevicePointer<const int32_t> index;           // [B · index_stride] cache rows
  int64_t index_stride = 0;
  DevicePointer<const int32_t> lengths;  // [B] ≥ 1
  DeviceMatrix<T> context;               // [B, H·D] (=)
};
template <typename T>  // float, BFloat16
void CachedAttention(StreamHandle stream, const CachedAttentionArgs<T>& args);

}  // namespace hadal::cuda
