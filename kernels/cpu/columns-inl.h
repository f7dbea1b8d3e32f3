// Vectorised loops over the columns of a row: ForColumns, and sums of a row in an order fixed by its width.
//
// A Highway "-inl" header: include it from a file that is compiled once per instruction set (hwy/foreach_target.h).

#if defined(HADAL_KERNELS_CPU_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_COLUMNS_INL_H_
#undef HADAL_KERNELS_CPU_COLUMNS_INL_H_
#else
#define HADAL_KERNELS_CPU_COLUMNS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using OneFloatTag = hn::CappedTag<float, 1>;
using FloatVec = hn::Vec<FloatTag>;

// Calls body(d, column) for columns [begin, end): whole vectors first, then one lane at a time. For element-wise
// bodies: a lane rounds the same in both forms, so a result does not depend on its column or on `begin`.
template <typename Body>
HWY_INLINE void ForColumns(int64_t begin, int64_t end, const Body& body) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t c = begin;
  for (; c + lanes <= end; c += lanes) body(d, c);
  for (; c < end; ++c) body(OneFloatTag(), c);
}

// Returns Σ_c term(d, c) over columns [0, width). Order: vector v of the row is added to partial sum v mod 4; then the
// partial sums as (0 + 1) + (2 + 3), then the lanes, then the columns after the last whole vector, ascending. It
// depends only on the width and the instruction set.
template <typename Term>
HWY_INLINE float SumColumns(int64_t width, const Term& term) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  FloatVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t c = 0;
  for (; c + 4 * lanes <= width; c += 4 * lanes) {
    sum0 = hn::Add(sum0, term(d, c));
    sum1 = hn::Add(sum1, term(d, c + lanes));
    sum2 = hn::Add(sum2, term(d, c + 2 * lanes));
    sum3 = hn::Add(sum3, term(d, c + 3 * lanes));
  }
  if (c + lanes <= width) sum0 = hn::Add(sum0, term(d, c)), c += lanes;
  if (c + lanes <= width) sum1 = hn::Add(sum1, term(d, c)), c += lanes;
  if (c + lanes <= width) sum2 = hn::Add(sum2, term(d, c)), c += lanes;
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; c < width; ++c) sum += hn::GetLane(term(OneFloatTag(), c));
  return sum;
}

// Two such sums in one loop: term(d, c, a, b) sets the terms of both. Order as in SumColumns, with two partial sums
// each (v mod 2).
template <typename Term>
HWY_INLINE void SumColumnPairs(int64_t width, float& sum_a, float& sum_b, const Term& term) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  FloatVec a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  FloatVec a, b;
  int64_t c = 0;
  for (; c + 2 * lanes <= width; c += 2 * lanes) {
    term(d, c, a, b);
    a0 = hn::Add(a0, a);
    b0 = hn::Add(b0, b);
    term(d, c + lanes, a, b);
    a1 = hn::Add(a1, a);
    b1 = hn::Add(b1, b);
  }
  if (c + lanes <= width) {
    term(d, c, a, b);
    a0 = hn::Add(a0, a);
    b0 = hn::Add(b0, b);
    c += lanes;
  }
  sum_a = hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, a1)));
  sum_b = hn::GetLane(hn::SumOfLanes(d, hn::Add(b0, b1)));
  for (; c < width; ++c) {
    hn::Vec<OneFloatTag> one_a, one_b;
    term(OneFloatTag(), c, one_a, one_b);
    sum_a += hn::GetLane(one_a);
    sum_b += hn::GetLane(one_b);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
