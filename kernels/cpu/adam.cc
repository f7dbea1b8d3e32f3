#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adam.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// Updates one vector of each array. The arrays' last lanes use the same operations, so the end of a thread's range does
// not change any bit.
HWY_INLINE void UpdateVector(const AdamScalars& s, Vec gradient, Vec& parameter, Vec& first, Vec& second) {
  const Tag d;
  const Vec g = hn::Mul(gradient, hn::Set(d, s.gradient_scale));
  first = hn::MulAdd(hn::Set(d, s.beta1), first, hn::Mul(hn::Set(d, s.one_minus_beta1), g));
  second = hn::MulAdd(hn::Set(d, s.beta2), second, hn::Mul(hn::Set(d, s.one_minus_beta2), hn::Mul(g, g)));
  const Vec direction = hn::Div(first, hn::Add(hn::Sqrt(second), hn::Set(d, s.epsilon)));
  parameter = hn::NegMulAdd(hn::Set(d, s.decay), parameter, parameter);
  parameter = hn::NegMulAdd(hn::Set(d, s.step_size), direction, parameter);
}

}  // namespace

void AdamKernel(const AdamScalars& scalars, const AdamArgs& args, int64_t begin, int64_t end) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  float* parameter = args.parameter.data;
  float* first = args.first_moment.data;
  float* second = args.second_moment.data;
  const float* gradient = args.gradient.data;
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    Vec p = hn::LoadU(d, parameter + i), m = hn::LoadU(d, first + i), v = hn::LoadU(d, second + i);
    UpdateVector(scalars, hn::LoadU(d, gradient + i), p, m, v);
    hn::StoreU(p, d, parameter + i);
    hn::StoreU(m, d, first + i);
    hn::StoreU(v, d, second + i);
  }
  const int64_t rest = end - i;
  if (rest == 0) return;
  Vec p = LoadPartial(d, parameter + i, rest, 0.0f), m = LoadPartial(d, first + i, rest, 0.0f);
  Vec v = LoadPartial(d, second + i, rest, 1.0f);  // not 0, because the unused lanes divide by its root
  UpdateVector(scalars, LoadPartial(d, gradient + i, rest, 0.0f), p, m, v);
  StorePartial(d, p, parameter + i, rest);
  StorePartial(d, m, first + i, rest);
  StorePartial(d, v, second + i, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {

constexpr int64_t kElementsPerRange = 4096;

}  // namespace

HWY_EXPORT(AdamKernel);

void cpu::AdamStep(const Stream& stream, const AdamArgs& args) {
  const AdamScalars scalars = AdamScalarsOf(args);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamKernel);
  stream.ForRanges(args.parameter.size, kElementsPerRange,
                   [&](int64_t begin, int64_t end) { kernel(scalars, args, begin, end); });
}

}  // namespace hadal

#endif  // HWY_ONCE
