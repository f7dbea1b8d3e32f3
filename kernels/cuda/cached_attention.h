// One decoding step of attention on the device: the formula and shapes of kernels/cached_attention.h.
//
// A block computes one head of one row, 128 cached positions at a time: first each thread computes a position's score,
// then a column of the values. The softmax is rescaled between groups of 128.
// Numerics: fp32, for every storage type. A score adds columns in ascending order. The exponentials of 128 positions
// are added as a butterfly in each warp, then over warps. A column adds positions in ascending order. A result depends
// on its row alone, in every batch. Asynchronous.
#pragma once

#include "kernels/attention_reach.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda/rotary.h"

namespace hadal::cuda {

inline constexpr int64_t kWidestCachedHead = 128;

template <typename T>
struct CachedAttentionArgs {
  int64_t rows = 0, heads = 1, head_width = 1;  // B, H, D ≤ kWidestCachedHead
  DeviceMatrix<const T> q;                      // [B, H·D]
  DeviceMatrix<const T> cache;                  // [cache rows, 2·K·D]: key, value; K = H / group
  DevicePointer<const int32_t> index;           // [B · index_stride] cache rows
  int64_t index_stride = 0;
  DevicePointer<const int32_t> lengths;  // [B] ≥ 1
  DeviceMatrix<T> output;                // [B, H·D] (=)
  int64_t group = 1;
  DeviceRotary rotary;  // turns q
  int32_t reach = kWholeSentence;
};
template <typename T>  // float, BFloat16
void CachedAttention(StreamHandle stream, const CachedAttentionArgs<T>& args);

}  // namespace hadal::cuda
