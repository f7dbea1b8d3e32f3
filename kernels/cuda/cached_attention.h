// One decoding step of attention on the device: the formula and shapes of kernels/cached_attention.h.
//
// A block computes one head of one row, 128 cached positions at a time: first a thread computes a position's score,
// then a column of the values. The softmax is rescaled from one 128 to the next.
// Numerics: fp32, however q, cache and output are stored. A score adds columns in ascending order. The exponentials of
// a 128 are added as a butterfly in each warp, then by warps. A column adds positions in ascending order. So a result
// depends on its row alone: the same bits in every batch. Asynchronous.
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
  DeviceMatrix<T> output;                // [B, H·D] (=)
};
template <typename T>  // float, BFloat16
void CachedAttention(StreamHandle stream, const CachedAttentionArgs<T>& args);

}  // namespace hadal::cuda
