#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/glu.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

void GluForwardRows(const GluForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.columns;
  for (int64_t row = begin; row < end; ++row) {
    const float *value = args.value.floats().row(row), *gate = args.gate.floats().row(row);
    float* y = args.y.floats().row(row);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, value + c), Sigmoid(d, hn::LoadU(d, gate + c))), d, y + c);
    });
  }
}

void GluBackwardRows(const GluBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.dy.columns;
  for (int64_t row = begin; row < end; ++row) {
    const float *dy = args.dy.floats().row(row), *value = args.value.floats().row(row),
                *gate = args.gate.floats().row(row);
    float *d_value = args.d_value.floats().row(row), *d_gate = args.d_gate.floats().row(row);
    ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
      const auto share = Sigmoid(d, hn::LoadU(d, gate + c)), gradient = hn::LoadU(d, dy + c);
      const auto slope = hn::Mul(share, hn::Sub(hn::Set(d, 1.0f), share));
      hn::StoreU(hn::Mul(hn::Mul(gradient, hn::LoadU(d, value + c)), slope), d, d_gate + c);
      hn::StoreU(hn::Mul(gradient, share), d, d_value + c);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {
constexpr int64_t kGrain = 4;  // rows a thread takes at least
HWY_EXPORT(GluForwardRows);
HWY_EXPORT(GluBackwardRows);
}  // namespace

void cpu::GluForward(const Stream& stream, const GluForwardArgs& args) {
  stream.ForRanges(args.y.rows, kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GluForwardRows)(args, begin, end);
  });
}

void cpu::GluBackward(const Stream& stream, const GluBackwardArgs& args) {
  stream.ForRanges(args.dy.rows, kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GluBackwardRows)(args, begin, end);
  });
}

}  // namespace hadal

#endif  // HWY_ONCE
