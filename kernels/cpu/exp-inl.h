// Exponentials of float vectors for softmax-like sums, whose arguments are ≤ 0 up to rounding, and logarithms of sums.
//
//   Exp(d, x) = e^x      Exp2(d, x) = 2^x      Log(d, x) = log x      Sigmoid(d, t) = 1 / (1 + e^−t)
//
// Method: x = n·log 2 + r with integer n and |r| ≤ log(2)/2 (Exp2: x = n + r, |r| ≤ 1/2). e^r is a polynomial of degree
// 6, minimax in relative error (3e-9) under p(0) = 1; the product with 2^n is exact. Adding 1.5·2^23 + 127 to x/log 2
// rounds it and leaves n + 127, the exponent field of 2^n, in the low bits.
// Highway's own Exp turns NaN into 0, which would hide a diverged run.
// Numerics: error < 1 ulp with fused multiply-add, < 2 ulp without; e^0 = 1 exactly; results below 2^-126 become 0;
// -inf gives 0; NaN stays NaN. REQUIRES: x ≤ 88 (Exp), x ≤ 127 (Exp2).
// Log: 2·artanh((m − 1)/(m + 1)) of the mantissa m in [0.707, 1.414), Taylor to the ninth power; error < 2 ulp; NaN
// stays NaN. REQUIRES: x is normal (at least 2^-126) and finite, or NaN.
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

// 1 / (1 + e^−t), by e^−|t|, which does not overflow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V t) {
  const V one = hn::Set(d, 1.0f), power = Exp(d, hn::Neg(hn::Abs(t)));  // e^−|t|
  return hn::Div(hn::IfThenElse(hn::Lt(t, hn::Zero(d)), power, one), hn::Add(one, power));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto least = hn::Set(di, 0x3f3504f3);  // sqrt(1/2)
  const auto exponent = hn::ShiftRight<23>(hn::Sub(hn::BitCast(di, x), least));
  const V m = hn::BitCast(d, hn::Sub(hn::BitCast(di, x), hn::ShiftLeft<23>(exponent)));
  const V one = hn::Set(d, 1.0f), s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), square = hn::Mul(s, s);
  V p = hn::MulAdd(hn::Set(d, 2.0f / 9), square, hn::Set(d, 2.0f / 7));
  p = hn::MulAdd(p, square, hn::Set(d, 2.0f / 5));
  p = hn::MulAdd(p, square, hn::Set(d, 2.0f / 3));
  const V of_mantissa = hn::MulAdd(hn::Mul(p, square), s, hn::Add(s, s));
  const V result = hn::MulAdd(hn::ConvertTo(d, exponent), hn::Set(d, 0.69314718f), of_mantissa);
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
