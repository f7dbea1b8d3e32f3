// Exponentials of float vectors for softmax-like sums: arguments are ≤ 0 up to rounding.
//
//   Exp(d, x)  = e^x        Exp2(d, x) = 2^x
//
// Method: x = n·log 2 + r with integer n and |r| ≤ log(2)/2 (Exp2: x = n + r, |r| ≤ 1/2). e^r is a polynomial of degree
// 6, minimax in relative error (3e-9) under p(0) = 1; the product with 2^n is exact. Adding 1.5·2^23 + 127 to x/log 2
// rounds it and leaves n + 127, the exponent field of 2^n, in the low bits.
// Highway's own Exp turns NaN into 0, which would hide a diverged run.
// Numerics: error < 1 ulp with fused multiply-add, < 2 ulp without; e^0 = 1 exactly; results below 2^-126 become 0;
// -inf gives 0; NaN stays NaN. REQUIRES: x ≤ 88 (Exp), x ≤ 127 (Exp2).
// A Highway "-inl" header: see dropout-inl.h.

#if defined(HADAL_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_EXP_INL_H_
#undef HADAL_KERNELS_CPU_EXP_INL_H_
#else
#define HADAL_KERNELS_CPU_EXP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kRoundAndBias = 12583039.0f;  // 1.5·2^23 + 127

// Returns 2^n for `biased` = kRoundAndBias + n.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V PowerOfTwo(D d, V biased) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, biased)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const V magic = hn::Set(d, kRoundAndBias);
  const V biased = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(biased, magic);
  // log 2 in two parts; the first has 15 significant bits, so that its product with n is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  V p = hn::MulAdd(hn::Set(d, 0.00140613131f), r, hn::Set(d, 0.00837903031f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416647757f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166663652f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.500000043f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365402f)), hn::Mul(p, PowerOfTwo(d, biased)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  const V magic = hn::Set(d, kRoundAndBias);
  const V biased = hn::Add(x, magic);
  const V r = hn::Sub(x, hn::Sub(biased, magic));
  V p = hn::MulAdd(hn::Set(d, 0.000155946777f), r, hn::Set(d, 0.00134066439f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00961769297f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555031055f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240226528f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147215f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, PowerOfTwo(d, biased)));
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
