#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adam.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

void AdamKernel(const AdamScalars& s, const AdamArgs& args, int64_t begin, int64_t end) {
  float* const parameters = args.parameter.data;
  ForColumns(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(d, args.gradient.data + i), hn::Set(d, s.gradient_scale));
    const auto first = hn::MulAdd(hn::Set(d, s.beta1), hn::LoadU(d, args.first_moment.data + i),
                                  hn::Mul(hn::Set(d, s.one_minus_beta1), g));
    const auto second = hn::MulAdd(hn::Set(d, s.beta2), hn::LoadU(d, args.second_moment.data + i),
                                   hn::Mul(hn::Set(d, s.one_minus_beta2), hn::Mul(g, g)));
    const auto direction = hn::Div(first, hn::Add(hn::Sqrt(second), hn::Set(d, s.epsilon)));
    auto parameter = hn::LoadU(d, parameters + i);
    parameter = hn::NegMulAdd(hn::Set(d, s.decay), parameter, parameter);
    parameter = hn::NegMulAdd(hn::Set(d, s.step_size), direction, parameter);
    hn::StoreU(parameter, d, parameters + i);
    hn::StoreU(first, d, args.first_moment.data + i);
    hn::StoreU(second, d, args.second_moment.data + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(AdamKernel);

void cpu::AdamStep(const Stream& stream, const AdamArgs& args) {
  const AdamScalars scalars = AdamScalarsOf(args);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamKernel);
  stream.ForRanges(args.parameter.size, /*grain=*/4096,
                   [&](int64_t begin, int64_t end) { kernel(scalars, args, begin, end); });
}

}  // namespace hadal

#endif  // HWY_ONCE
