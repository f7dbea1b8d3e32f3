// Vectorised loops over the columns of a row: ForColumns, and sums of a row in an order fixed by its width alone, the
// same on every instruction set.
//
// A Highway "-inl" header: include it from a file that is compiled once per instruction set (hwy/foreach_target.h).

#if defined(HADAL_KERNELS_CPU_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_COLUMNS_INL_H_
#undef HADAL_KERNELS_CPU_COLUMNS_INL_H_
#else
#define HADAL_KERNELS_CPU_COLUMNS_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using OneFloatTag = hn::CappedTag<float, 1>;
using FloatVec = hn::Vec<FloatTag>;

// Calls body(d, column) for columns [begin, end): whole vectors first, then single lanes; d is the Highway tag of the
// vector that starts at `column`, FloatTag or OneFloatTag. For element-wise bodies: a lane rounds the same with both
// tags, so a result does not depend on its column or on `begin`.
template <typename Body>
HWY_INLINE void ForColumns(int64_t begin, int64_t end, const Body& body) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t c = begin;
  for (; c + lanes <= end; c += lanes) body(d, c);
  for (; c < end; ++c) body(OneFloatTag(), c);
}

// Returns Σ lanes of v: the upper half is added to the lower half, until one lane is left.
template <class D>
HWY_INLINE float SumOfHalves(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return SumOfHalves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  }
}

// Sixteen partial sums, on every instruction set: one, two or four vectors. Clear sets them to 0; it is no constructor,
// which GCC would compile for another instruction set than its caller's.
inline constexpr int kSumLanes = 16;
struct PartialSums {
  static constexpr int kVectors = kSumLanes / hn::MaxLanes(FloatTag());

  FloatVec vectors[kVectors];

  HWY_INLINE void Clear() {
    for (FloatVec& vector : vectors) vector = hn::Zero(FloatTag());
  }
  HWY_INLINE void Add(const PartialSums& other) {
    for (int v = 0; v < kVectors; ++v) vectors[v] = hn::Add(vectors[v], other.vectors[v]);
  }
  // Order: lanes i and i + 8, then i and i + 4, i + 2, i + 1. Overwrites the vectors.
  HWY_INLINE float Sum() {
    for (int half = kVectors / 2; half > 0; half /= 2) {
      for (int v = 0; v < half; ++v) vectors[v] = hn::Add(vectors[v], vectors[v + half]);
    }
    return SumOfHalves(FloatTag(), vectors[0]);
  }
};

// Computes kTerms sums over the columns [0, width) of a row: sums[k] = Σ_c of term k at column c. term(d, c, terms)
// sets terms[k], a vector of tag d, for the columns from c. Order, on every instruction set: column c is added to lane
// c mod 16 of chain (c / 16) mod kChains, in ascending order; then the chains as (0 + 1) + (2 + 3); then the lanes
// (PartialSums::Sum).
template <int kTerms, int kChains, typename Term>
HWY_INLINE void SumColumnTerms(int64_t width, float (&sums)[kTerms], const Term& term) {
  static_assert(kChains == 2 || kChains == 4);
  const FloatTag d;
  constexpr int kLanes = hn::MaxLanes(FloatTag());
  PartialSums chains[kChains][kTerms];
  for (auto& chain : chains) {
    for (PartialSums& sums_of_term : chain) sums_of_term.Clear();
  }
  const auto add = [&](int64_t c, PartialSums(&to)[kTerms]) HWY_ATTR {
    for (int v = 0; v < PartialSums::kVectors; ++v) {
      FloatVec terms[kTerms];
      term(d, c + v * kLanes, terms);
      for (int k = 0; k < kTerms; ++k) to[k].vectors[v] = hn::Add(to[k].vectors[v], terms[k]);
    }
  };
  int64_t c = 0;
  for (; c + kChains * kSumLanes <= width; c += kChains * kSumLanes) {
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain) add(c + chain * kSumLanes, chains[chain]);
  }
#pragma GCC unroll 4
  for (int chain = 0; chain < kChains; ++chain) {
    if (c + kSumLanes <= width) {
      add(c, chains[chain]);
      c += kSumLanes;
    } else if (c < width) {
      HWY_ALIGN float rest[kTerms][kSumLanes] = {};
      for (int lane = 0; c < width; ++c, ++lane) {
        hn::Vec<OneFloatTag> one[kTerms];
        term(OneFloatTag(), c, one);
        for (int k = 0; k < kTerms; ++k) rest[k][lane] = hn::GetLane(one[k]);
      }
      for (int k = 0; k < kTerms; ++k) {
        for (int v = 0; v < PartialSums::kVectors; ++v) {
          chains[chain][k].vectors[v] = hn::Add(chains[chain][k].vectors[v], hn::Load(d, rest[k] + v * kLanes));
        }
      }
    }
  }
  for (int k = 0; k < kTerms; ++k) {
    chains[0][k].Add(chains[1][k]);
    if constexpr (kChains == 4) {
      chains[2][k].Add(chains[3][k]);
      chains[0][k].Add(chains[2][k]);
    }
    sums[k] = chains[0][k].Sum();
  }
}

// Returns Σ_c term(d, c) over columns [0, width), in the order of SumColumnTerms with four chains.
template <typename Term>
HWY_INLINE float SumColumns(int64_t width, const Term& term) {
  float sums[1];
  SumColumnTerms<1, 4>(width, sums, [&](auto d, int64_t c, auto& terms) HWY_ATTR { terms[0] = term(d, c); });
  return sums[0];
}

// 1 / √x; NaN for infinity, so that a sum that overflows does not norm to zeros.
HWY_INLINE float InverseRoot(float x) { return 1.0f / std::sqrt(x) + 0 * x; }

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
