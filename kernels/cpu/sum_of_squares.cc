#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sum_of_squares.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kSums = 8;  // for every vector width: sum i adds the elements i, i + 8, i + 16, …

}  // namespace

// The square of a float is exact in double, so a fused multiply-add and a product followed by a sum agree: every
// instruction set gives the same bits.
double SumOfSquaresKernel(ConstVector x) {
  const hn::CappedTag<double, kSums> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  constexpr int64_t kVectors = kSums / kLanes;
  using Vec = hn::Vec<decltype(d)>;

  Vec sums[kVectors];
  for (Vec& sum : sums) sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kSums <= x.size; i += kSums) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const Vec wide = hn::PromoteTo(d, hn::LoadU(df, x.data + i + v * kLanes));
      sums[v] = hn::MulAdd(wide, wide, sums[v]);
    }
  }
  HWY_ALIGN double s[kSums];
  for (int64_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, s + v * kLanes);
  for (int64_t lane = 0; i < x.size; ++i, ++lane) s[lane] += double{x.data[i]} * x.data[i];
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(SumOfSquaresKernel);

double cpu::SumOfSquares(ConstVector x) { return HWY_DYNAMIC_DISPATCH(SumOfSquaresKernel)(x); }

}  // namespace hadal

#endif  // HWY_ONCE
