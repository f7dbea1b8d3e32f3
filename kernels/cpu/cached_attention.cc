#include "kernels/cpu/cached_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cached_attention.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// The data of a hypothesis for one head.
struct CachedHead {
  const float* query;       // [D]
  const float* keys;        // of cache row 0; position p's entry is index[p] cache rows later
  const float* values;      // as keys
  const int32_t* index;     // [length]
  int64_t cache_row_width;  // stride of the cache
  int64_t length;
  int64_t head_width;  // D
};

HWY_INLINE float Dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t count) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  Vec sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  if (i < count) {
    sum = hn::MulAdd(LoadPartial(d, a + i, count - i, 0.0f), LoadPartial(d, b + i, count - i, 0.0f), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// weights[p] = e^(score_p − maximum). Returns their sum: lanes are positions and are added in a fixed order.
HWY_INLINE float Exponentials(const CachedHead& head, float* HWY_RESTRICT weights) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head.head_width)));
  float maximum = -std::numeric_limits<float>::infinity();
  for (int64_t p = 0; p < head.length; ++p) {
    weights[p] = scale * Dot(head.query, head.keys + head.index[p] * head.cache_row_width, head.head_width);
    maximum = std::max(maximum, weights[p]);
  }
  const Vec shift = hn::Set(d, maximum);
  Vec sum = hn::Zero(d);
  int64_t p = 0;
  for (; p + lanes <= head.length; p += lanes) {
    const Vec e = Exp(d, hn::Sub(hn::LoadU(d, weights + p), shift));
    hn::StoreU(e, d, weights + p);
    sum = hn::Add(sum, e);
  }
  if (p < head.length) {
    const float nothing = -std::numeric_limits<float>::infinity();  // e^nothing = 0
    const Vec e = Exp(d, hn::Sub(LoadPartial(d, weights + p, head.length - p, nothing), shift));
    StorePartial(d, e, weights + p, head.length - p);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

HWY_INLINE const float* ValueAt(const CachedHead& head, int64_t position) {
  return head.values + head.index[position] * head.cache_row_width;
}

// The columns of kVectors vectors from `column`, in one pass over the positions.
template <int kVectors>
HWY_INLINE void SumOfValueVectors(const CachedHead& head, const float* HWY_RESTRICT weights, float scale,
                                  int64_t column, float* HWY_RESTRICT output) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  Vec sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t p = 0; p < head.length; ++p) {
    const float* HWY_RESTRICT value = ValueAt(head, p) + column;
    const Vec weight = hn::Set(d, weights[p]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(weight, hn::LoadU(d, value + v * lanes), sums[v]);
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Mul(sums[v], hn::Set(d, scale)), d, output + column + v * lanes);
}

// output[0, D) = scale · Σ_p weights[p] · value_p
HWY_INLINE void SumOfValues(const CachedHead& head, const float* HWY_RESTRICT weights, float scale,
                            float* HWY_RESTRICT output) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d), width = head.head_width;
  int64_t j = 0;
  for (; j + 4 * lanes <= width; j += 4 * lanes) SumOfValueVectors<4>(head, weights, scale, j, output);
  for (; j + 2 * lanes <= width; j += 2 * lanes) SumOfValueVectors<2>(head, weights, scale, j, output);
  for (; j + lanes <= width; j += lanes) SumOfValueVectors<1>(head, weights, scale, j, output);
  const int64_t rest = width - j;
  if (rest == 0) return;
  Vec sum = hn::Zero(d);
  for (int64_t p = 0; p < head.length; ++p) {
    sum = hn::MulAdd(hn::Set(d, weights[p]), LoadPartial(d, ValueAt(head, p) + j, rest, 0.0f), sum);
  }
  StorePartial(d, hn::Mul(sum, hn::Set(d, scale)), output + j, rest);
}

}  // namespace

void CachedAttentionKernel(const CachedAttentionArgs& args, int64_t begin, int64_t end, float* weights) {
  const int64_t columns = args.q.columns;
  const int64_t head_width = columns / args.heads;
  const ConstMatrix q = args.q.floats(), cache = args.cache.floats();
  const Matrix output = args.output.floats();
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t column = 0; column < columns; column += head_width) {
      const CachedHead head = {.query = q.row(i) + column,
                               .keys = cache.data + column,
                               .values = cache.data + columns + column,
                               .index = args.index.data + i * args.index_stride,
                               .cache_row_width = cache.stride,
                               .length = args.lengths[i],
                               .head_width = head_width};
      const float sum = Exponentials(head, weights);
      SumOfValues(head, weights, 1.0f / sum, output.row(i) + column);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(CachedAttentionKernel);

void cpu::CachedAttention(const Stream& stream, const CachedAttentionArgs& args) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(CachedAttentionKernel);
  stream.Run([&](int thread) {
    const auto [begin, end] = stream.Range(args.q.rows, /*grain=*/1, thread);
    kernel(args, begin, end, args.scratch.data + thread * args.index_stride);
  });
}

}  // namespace hadal

#endif  // HWY_ONCE
