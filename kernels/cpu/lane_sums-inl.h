// Adds up the lanes of each of several vectors at once: the last part of dot products.
//
// Order: neighbouring lanes are added in pairs, then neighbouring sums of these, and so on. Fewer instructions than one
// vector at a time: the sums of two vectors share one.
// A Highway "-inl" header: see columns-inl.h.

#if defined(HADAL_KERNELS_CPU_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_LANE_SUMS_INL_H_
#undef HADAL_KERNELS_CPU_LANE_SUMS_INL_H_
#else
#define HADAL_KERNELS_CPU_LANE_SUMS_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

inline constexpr int kFloatLanes = hn::MaxLanes(FloatTag());

// Adds neighbouring groups of kWidth lanes in pairs. The sums of a's pairs are in the even groups of the result, those
// of b's pairs in the odd ones. (If kWidth is half a vector, a's sum is in the lower half and b's in the upper half.)
// Groups of one or two lanes stay within blocks of 128 bits; crossing these is slow.
template <int kWidth>
HWY_INLINE FloatVec PairSums(FloatVec a, FloatVec b) {
  [[maybe_unused]] const FloatTag d;
  if constexpr (kWidth == kFloatLanes / 2) {
    return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  } else if constexpr (kWidth == 1) {
    return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
  } else if constexpr (kWidth == 2) {
    const hn::RepartitionToWide<FloatTag> pairs;
    const auto x = hn::BitCast(pairs, a), y = hn::BitCast(pairs, b);
    return hn::Add(hn::BitCast(d, hn::OddEven(y, x)), hn::BitCast(d, hn::Shuffle01(hn::OddEven(x, y))));
  } else {
    return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
  }
}

// Applies PairSums for kWidth, 2 · kWidth, … to `count` vectors.
template <int kWidth, int kCount>
HWY_INLINE void SumLevels(FloatVec (&level)[kCount], int count) {
  if constexpr (kWidth < kFloatLanes) {
    const int pairs = (count + 1) / 2;
#pragma GCC unroll 8
    for (int i = 0; i < pairs; ++i) level[i] = PairSums<kWidth>(level[2 * i], level[std::min(2 * i + 1, count - 1)]);
    SumLevels<2 * kWidth>(level, pairs);
  }
}

// sums[i] = Σ lanes of vectors[i], of at most 16 vectors. Writes whole vectors: `sums` has room for a multiple of the
// lanes.
template <int kCount>
HWY_INLINE void SumLanes(const FloatVec (&vectors)[kCount], float* HWY_RESTRICT sums) {
  static_assert(kCount <= 16);
  FloatVec level[kCount];
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) level[i] = vectors[i];
  SumLevels<1>(level, kCount);
#pragma GCC unroll 16
  for (int i = 0; i < (kCount + kFloatLanes - 1) / kFloatLanes; ++i) {
    hn::StoreU(level[i], FloatTag(), sums + i * kFloatLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
