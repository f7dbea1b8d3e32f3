// Loads and stores the first lanes of a vector at the end of an array, by a mask, or without masks (SSE4) through a
// small buffer on the stack: no byte beyond the array is accessed on any instruction set.
// A Highway "-inl" header: see dropout-inl.h.

#if defined(HADAL_KERNELS_CPU_PARTIAL_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_PARTIAL_VECTOR_INL_H_
#undef HADAL_KERNELS_CPU_PARTIAL_VECTOR_INL_H_
#else
#define HADAL_KERNELS_CPU_PARTIAL_VECTOR_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns from[0, count) in the low lanes and `fill` in the others. REQUIRES: 0 ≤ count ≤ lanes.
template <class D>
HWY_INLINE hn::Vec<D> LoadPartial(D d, const float* HWY_RESTRICT from, int64_t count, float fill) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SSE4
  const auto mask = hn::FirstN(d, static_cast<size_t>(count));
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, from), hn::Set(d, fill));
#else
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(hn::Set(d, fill), d, lanes);
  for (int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

// Sets to[0, count) to the low lanes. REQUIRES: 0 ≤ count ≤ lanes.
template <class D>
HWY_INLINE void StorePartial(D d, hn::Vec<D> v, float* HWY_RESTRICT to, int64_t count) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SSE4
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(count)), d, to);
#else
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
