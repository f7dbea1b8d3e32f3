#include "kernels/cpu/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cached_attention.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/partial_vector-inl.h"
#include "kernels/cpu/rotary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Vec = FloatVec;

// The data of a hypothesis for one head.
struct CachedHead {
  const float* query;       // [D]
  const float* keys;        // of cache row 0; position p's entry is index[p] cache rows later
  const float* values;      // as keys
  const int32_t* index;     // [length], of the first position that the query sees on
  int64_t cache_row_width;  // stride of the cache
  int64_t length;
  int64_t head_width;  // D

  const float* Key(int64_t position) const { return keys + index[position] * cache_row_width; }
  const float* Value(int64_t position) const { return values + index[position] * cache_row_width; }
};

// Loads floats that the next head reads into the cache: the CPU does not foresee scattered rows.
HWY_INLINE void Prefetch(const float* from, int64_t width) {
  constexpr int64_t kLineFloats = 64 / sizeof(float);  // of a cache line
  for (int64_t j = 0; j < width; j += kLineFloats) hwy::Prefetch(from + j);
}

// scores[l] = q · key of position first + l, for the vectors of sixteen positions that are not wholly behind the last
// position; behind it that of the last one.
// Order, on every instruction set: column j is added to partial sum j mod 16, ascending; then neighbouring partial sums
// in pairs, and so on.
HWY_INLINE void Scores(const CachedHead& head, int64_t first, float* HWY_RESTRICT scores) {
  const FloatTag d;
  constexpr int kVectors = PartialSums::kVectors;
  constexpr int kPositions = kVectors == 1 ? 16 : 4;  // at once: their sums fit the registers
  for (int64_t p = 0; p < kSumLanes; p += kPositions) {
    const float* keys[kPositions];
    Vec sums[kPositions * kVectors];
#pragma GCC unroll 16
    for (int l = 0; l < kPositions; ++l) keys[l] = head.Key(std::min(first + p + l, head.length - 1));
#pragma GCC unroll 16
    for (Vec& sum : sums) sum = hn::Zero(d);
    const auto add = [&](auto load, int64_t j, int v) HWY_ATTR {
      const Vec q = load(head.query + j);
#pragma GCC unroll 16
      for (int l = 0; l < kPositions; ++l) {
        sums[l * kVectors + v] = hn::MulAdd(q, load(keys[l] + j), sums[l * kVectors + v]);
      }
    };
    for (int64_t j = 0; j < head.head_width; j += kSumLanes) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int64_t column = j + v * kFloatLanes, rest = head.head_width - column;
        if (rest >= kFloatLanes) {
          add([&](const float* at) HWY_ATTR { return hn::LoadU(d, at); }, column, v);
        } else if (rest > 0) {
          add([&](const float* at) HWY_ATTR { return LoadPartial(d, at, rest, 0.0f); }, column, v);
        }
      }
    }
    HWY_ALIGN float parts[kPositions * kVectors];
    SumLanes(sums, parts);
#pragma GCC unroll 16
    for (int l = 0; l < kPositions; ++l) {
      const float* of = parts + l * kVectors;
      scores[p + l] = kVectors == 1 ? of[0] : kVectors == 2 ? of[0] + of[1] : (of[0] + of[1]) + (of[2] + of[3]);
    }
    if ((p + kPositions) % kFloatLanes == 0 && first + p + kPositions >= head.length) return;
  }
}

// weights[p] = e^(score_p − maximum). Returns their sum: position p is added to partial sum p mod 16.
// `next`: the head that follows.
HWY_INLINE float Exponentials(const CachedHead& head, const CachedHead& next, float* HWY_RESTRICT weights) {
  const FloatTag d;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();  // e^kNothing = 0
  const Vec scale = hn::Set(d, static_cast<float>(1 / std::sqrt(static_cast<double>(head.head_width))));
  const auto store = [&](Vec v, int64_t p) HWY_ATTR {
    if (p + kFloatLanes <= head.length) return hn::StoreU(v, d, weights + p);
    StorePartial(d, v, weights + p, head.length - p);
  };
  HWY_ALIGN float scores[kSumLanes];
  Vec maxima = hn::Set(d, kNothing);
  for (int64_t p = 0; p < head.length; p += kSumLanes) {
    const int64_t end = std::min(p + kSumLanes, head.length);
    for (int64_t n = p; n < std::min(end, next.length); ++n) Prefetch(next.Key(n), next.head_width);
    Scores(head, p, scores);
    for (int64_t at = p; at < end; at += kFloatLanes) {
      const Vec scaled = hn::Mul(scale, hn::Load(d, scores + (at - p)));
      maxima = hn::Max(maxima, scaled);
      store(scaled, at);
    }
  }
  const Vec maximum = hn::MaxOfLanes(d, maxima);
  PartialSums sums;
  sums.Clear();
  for (int64_t p = 0; p < head.length; p += kSumLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < PartialSums::kVectors; ++v) {
      const int64_t at = p + v * kFloatLanes, rest = head.length - at;
      if (rest <= 0) break;
      const Vec score = rest >= kFloatLanes ? hn::LoadU(d, weights + at) : LoadPartial(d, weights + at, rest, kNothing);
      const Vec e = Exp(d, hn::Sub(score, maximum));
      store(e, at);
      sums.vectors[v] = hn::Add(sums.vectors[v], e);
    }
  }
  return sums.Sum();
}

// The columns of kVectors vectors from `column`, in one pass over the positions.
template <int kVectors>
HWY_INLINE void SumOfValueVectors(const CachedHead& head, const CachedHead& next, const float* HWY_RESTRICT weights,
                                  float scale, int64_t column, float* HWY_RESTRICT output) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  Vec sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t p = 0; p < head.length; ++p) {
    const float* HWY_RESTRICT value = head.Value(p) + column;
    if (p < next.length) Prefetch(next.Value(p) + column, kVectors * lanes);
    const Vec weight = hn::Set(d, weights[p]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(weight, hn::LoadU(d, value + v * lanes), sums[v]);
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Mul(sums[v], hn::Set(d, scale)), d, output + column + v * lanes);
}

// output[0, D) = scale · Σ_p weights[p] · value_p
HWY_INLINE void SumOfValues(const CachedHead& head, const CachedHead& next, const float* HWY_RESTRICT weights,
                            float scale, float* HWY_RESTRICT output) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d), width = head.head_width;
  int64_t j = 0;
  for (; j + 4 * lanes <= width; j += 4 * lanes) SumOfValueVectors<4>(head, next, weights, scale, j, output);
  for (; j + 2 * lanes <= width; j += 2 * lanes) SumOfValueVectors<2>(head, next, weights, scale, j, output);
  for (; j + lanes <= width; j += lanes) SumOfValueVectors<1>(head, next, weights, scale, j, output);
  const int64_t rest = width - j;
  if (rest == 0) return;
  Vec sum = hn::Zero(d);
  for (int64_t p = 0; p < head.length; ++p) {
    sum = hn::MulAdd(hn::Set(d, weights[p]), LoadPartial(d, head.Value(p) + j, rest, 0.0f), sum);
  }
  StorePartial(d, hn::Mul(sum, hn::Set(d, scale)), output + j, rest);
}

}  // namespace

void CachedAttentionKernel(const CachedAttentionArgs& args, int64_t begin, int64_t end, float* weights) {
  const int64_t heads = args.heads, head_width = args.q.columns / heads, key_columns = args.cache.columns / 2;
  const ConstMatrix q = args.q.floats(), cache = args.cache.floats();
  const Matrix output = args.output.floats();
  const auto head_at = [&](int64_t number) {
    const int64_t i = number / heads, head = number % heads, column = head / args.group * head_width;
    const int64_t first = FirstPosition(args.lengths[i], args.reach);
    return CachedHead{.query = q.row(i) + head * head_width,
                      .keys = cache.data + column,
                      .values = cache.data + key_columns + column,
                      .index = args.index.data + i * args.index_stride + first,
                      .cache_row_width = cache.stride,
                      .length = args.lengths[i] - first,
                      .head_width = head_width};
  };
  const int64_t last = end * heads - 1;
  for (int64_t number = begin * heads; number <= last; ++number) {
    CachedHead head = head_at(number);
    const CachedHead next = head_at(std::min(number + 1, last));
    if (args.rotary.active()) {
      float* const turned = weights + args.index_stride;
      std::copy_n(head.query, head_width, turned);
      TurnRow(args.rotary, args.lengths[number / heads] - 1, false, turned);
      head.query = turned;
    }
    const float sum = Exponentials(head, next, weights);
    SumOfValues(head, next, weights, 1.0f / sum, output.row(number / heads) + number % heads * head_width);
  }
}

void TurnScatteredKeysKernel(const ScatterRowsArgs& args) {
  for (int64_t i = 0; i < args.index.size; ++i) {
    float* const row = args.y.floats().row(args.index[i]);
    for (int64_t c = 0; c < args.turned_columns; c += args.head_width) {
      TurnRow(args.rotary, args.positions[i], false, row + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(CachedAttentionKernel);
HWY_EXPORT(TurnScatteredKeysKernel);

void cpu::CachedAttention(const Stream& stream, const CachedAttentionArgs& args) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(CachedAttentionKernel);
  stream.Run([&](int thread) {
    const auto [begin, end] = stream.Range(args.q.rows, /*grain=*/1, thread);
    kernel(args, begin, end, args.scratch.data + thread * (args.index_stride + args.q.columns / args.heads));
  });
}

void cpu::TurnScatteredKeys(const ScatterRowsArgs& args) { HWY_DYNAMIC_DISPATCH(TurnScatteredKeysKernel)(args); }

}  // namespace hadal

#endif  // HWY_ONCE
