// Adds up the lanes of several vectors at once: dot products of contiguous vectors.
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

#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

inline constexpr int kFloatLanes = hn::MaxLanes(FloatTag());

// Returns the sums of neighbouring lanes: of a in the lower half, of b in the upper half.
HWY_INLINE FloatVec PairSums(FloatVec a, FloatVec b) {
#if HWY_TARGET == HWY_SCALAR
  return a;  // never called
#else
  const FloatTag d;
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

// sums[i · lanes + l] = Σ lanes of vectors[i · lanes + l]. REQUIRES: kCount is a multiple of the lanes, at most 16.
template <int kCount>
HWY_INLINE void SumLanes(const FloatVec (&vectors)[kCount], float* HWY_RESTRICT sums) {
  static_assert(kCount % kFloatLanes == 0 && kCount <= 16);
  FloatVec level[kCount];
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) level[i] = vectors[i];
#pragma GCC unroll 4
  for (int width = kFloatLanes; width > 1; width /= 2) {
    const int pairs = kCount * width / kFloatLanes / 2;
#pragma GCC unroll 8
    for (int i = 0; i < pairs; ++i) level[i] = PairSums(level[2 * i], level[2 * i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kCount / kFloatLanes; ++i) hn::StoreU(level[i], FloatTag(), sums + i * kFloatLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
