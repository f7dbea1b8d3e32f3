#include "kernels/cuda/cached_attention.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/rotary_columns.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 128;  // positions at a time, one per thread
constexpr int kWarps = kThreads / kWarp;
static_assert(kThreads >= kWidestCachedHead);  // a thread has one column

HADAL_DEVICE float MinusInfinity() { return FloatOf(0xFF800000u); }

// Reduces one value per thread over the block. `slots` [kWarps] may be written again only after another barrier.
HADAL_DEVICE float MaximumOfBlock(float x, Shared<float> slots) {
  HADAL_UNROLL for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = ShuffleXor(x, mask);
    if (other > x) x = other;
  }
  if (ThreadIndex() % kWarp == 0) slots[ThreadIndex() / kWarp] = x;
  Barrier();
  HADAL_UNROLL for (int w = 0; w < kWarps; ++w) {
    if (slots[w] > x) x = slots[w];
  }
  return x;
}
HADAL_DEVICE float SumOfBlock(float x, Shared<float> slots) {
  x = SumOfWarp(x);
  if (ThreadIndex() % kWarp == 0) slots[ThreadIndex() / kWarp] = x;
  Barrier();
  float sum = slots[0];
  HADAL_UNROLL for (int w = 1; w < kWarps; ++w) sum += slots[w];
  return sum;
}

// Returns Σ_j query[j] · key[j], j ascending; loads eight elements of the key at a time, as 16 bytes if aligned.
template <bool kAligned, typename T>
HADAL_DEVICE float Dot(Shared<float> query, DevicePointer<const T> key, int64_t width) {
  float dot = 0.0f;
  HADAL_UNROLL_BY(1) for (int64_t j = 0; j < width; j += 8) {
    const int count = width - j < 8 ? static_cast<int>(width - j) : 8;
    const Eight k = LoadEight<kAligned>(key + j, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      if (kAligned || c < count) dot = MulAdd(query[j + c], k.v[c], dot);
    }
  }
  return dot;
}

// Block (x, y): row x, head y.
template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) CachedAttentionKernel(CachedAttentionArgs<T> args) {
  HADAL_SHARED(float, query, kWidestCachedHead);
  HADAL_SHARED(float, weights, kThreads);
  HADAL_SHARED(float, maxima, kWarps);
  HADAL_SHARED(float, sums, kWarps);
  const int thread = ThreadIndex();
  const int64_t width = args.heads / args.group * args.head_width, of_head = BlockY() * args.head_width;
  const int64_t first_column = BlockY() / args.group * args.head_width;  // of keys, and of values behind `width`
  const bool has_column = thread < args.head_width;
  const bool aligned = args.head_width % 8 == 0 && RowsOn16Bytes(args.cache);  // then so are every head's columns
  const int32_t length = Load(args.lengths + BlockX());
  if (has_column) {
    const DevicePointer<const T> q = args.q.row(BlockX()) + of_head;
    query[thread] = TurnedColumn(args.rotary, q, thread, ToFloat(Load(q + thread)), length - 1);
  }
  Barrier();
  const float scale = 1.0f / SquareRoot(static_cast<float>(args.head_width));
  float maximum = MinusInfinity(), sum = 0.0f, output = 0.0f;
  const int32_t begin = length > args.reach ? length - 1 - args.reach : 0;
  for (int32_t first = begin; first < length; first += kThreads) {
    const DevicePointer<const int32_t> index = args.index + BlockX() * args.index_stride + first;
    const int count = length - first < kThreads ? length - first : kThreads;
    float score = MinusInfinity();
    if (thread < count) {
      const DevicePointer<const T> key = args.cache.row(Load(index + thread)) + first_column;
      score = scale * (aligned ? Dot<true>(query, key, args.head_width) : Dot<false>(query, key, args.head_width));
    }
    const float highest = MaximumOfBlock(score, maxima), before = maximum;
    if (highest > maximum) maximum = highest;
    const float weight = thread < count ? Exp(score - maximum) : 0.0f, correction = Exp(before - maximum);
    weights[thread] = weight;  // MaximumOfBlock's barrier: the previous ones have been read
    sum = MulAdd(sum, correction, SumOfBlock(weight, sums));
    output *= correction;
    if (has_column) {
      for (int p = 0; p < count; ++p) {
        const DevicePointer<const T> value = args.cache.row(Load(index + p)) + width + first_column;
        output = MulAdd(weights[p], ToFloat(Load(value + thread)), output);
      }
    }
  }
  if (has_column) Store(args.output.row(BlockX()) + of_head + thread, FromFloat<T>(output / sum));
}

}  // namespace

template <typename T>
void CachedAttention(StreamHandle stream, const CachedAttentionArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.q && args.cache && args.index && args.lengths && args.output);
  HADAL_CHECK(args.heads >= 1 && args.head_width >= 1 && args.head_width <= kWidestCachedHead);
  Launch(stream, {.blocks_x = args.rows, .blocks_y = args.heads, .threads = kThreads}, CachedAttentionKernel<T>, args);
}
template void CachedAttention(StreamHandle stream, const CachedAttentionArgs<float>& args);
template void CachedAttention(StreamHandle stream, const CachedAttentionArgs<BFloat16>& args);

}  // namespace hadal::cuda
