#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

// act(t) and act'(t).
template <typename V>
struct Activated {
  V value, slope;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Activated<V> Gelu(D d, V t) {
  const V x = hn::Abs(t);
  const V bell = Exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  const V k = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(hn::Set(d, kNormalTailScale), x, hn::Set(d, 1.0f)));
  V sum = hn::Set(d, kNormalTail[5]);
  for (int j = 4; j >= 0; --j) sum = hn::MulAdd(sum, k, hn::Set(d, kNormalTail[j]));
  const V tail = hn::Mul(hn::Mul(sum, k), bell);
  const V share = hn::IfThenElse(hn::Lt(t, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
  return {hn::Mul(t, share), hn::MulAdd(hn::Mul(t, bell), hn::Set(d, 0.398942280f), share)};
}

// t·σ(a) and its slope, where a' is the derivative of a by t.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Activated<V> TimesSigmoid(D d, V t, V a, V a_slope) {
  const V share = Sigmoid(d, a);
  const V steep = hn::Mul(hn::Mul(share, hn::Sub(hn::Set(d, 1.0f), share)), a_slope);
  return {hn::Mul(t, share), hn::MulAdd(t, steep, share)};
}

template <Activation kActivation, class D, class V = hn::Vec<D>>
HWY_INLINE Activated<V> Activate(D d, V t) {
  if constexpr (kActivation == Activation::kRelu) {
    const auto negative = hn::Lt(t, hn::Zero(d));
    return {hn::IfThenZeroElse(negative, t), hn::IfThenElseZero(hn::Gt(t, hn::Zero(d)), hn::Set(d, 1.0f))};
  } else if constexpr (kActivation == Activation::kGelu) {
    return Gelu(d, t);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    const V square = hn::Mul(t, t), two_c = hn::Set(d, 1.59576912f);  // 2·sqrt(2/π)
    const V a = hn::Mul(hn::Mul(two_c, t), hn::MulAdd(hn::Set(d, 0.044715f), square, hn::Set(d, 1.0f)));
    const V a_slope = hn::Mul(two_c, hn::MulAdd(hn::Set(d, 0.134145f), square, hn::Set(d, 1.0f)));
    return TimesSigmoid(d, t, a, a_slope);
  } else {
    return TimesSigmoid(d, t, t, hn::Set(d, 1.0f));
  }
}

template <Activation kActivation>
void ForwardRows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.columns;
  DropoutWindow window(args.dropout, end * width);
  for (int64_t row = begin; row < end; ++row) {
    const float* const z = args.z.floats().row(row);
    float* const y = args.y.floats().row(row);
    window.ForRow(row * width, 0, width, [&](auto d, int64_t c, const float* factors) HWY_ATTR {
      auto value = Activate<kActivation>(d, hn::LoadU(d, z + c)).value;
      if (args.gated) value = hn::Mul(value, hn::LoadU(d, z + width + c));
      if (factors != nullptr) value = hn::Mul(value, hn::LoadU(d, factors + c));
      hn::StoreU(value, d, y + c);
    });
  }
}

template <Activation kActivation>
void BackwardRows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.dy.columns;
  DropoutWindow window(args.dropout, end * width);
  for (int64_t row = begin; row < end; ++row) {
    const float *const z = args.z.floats().row(row), *const dy = args.dy.floats().row(row);
    float* const dz = args.dz.floats().row(row);
    window.ForRow(row * width, 0, width, [&](auto d, int64_t c, const float* factors) HWY_ATTR {
      const auto activated = Activate<kActivation>(d, hn::LoadU(d, z + c));
      auto gradient = hn::LoadU(d, dy + c);
      if (factors != nullptr) gradient = hn::Mul(gradient, hn::LoadU(d, factors + c));
      if (args.gated) {  // dy[c] has been read and may lie where d z_2[c] is written
        hn::StoreU(hn::Mul(gradient, activated.value), d, dz + width + c);
        gradient = hn::Mul(gradient, hn::LoadU(d, z + width + c));
      }
      hn::StoreU(hn::Mul(gradient, activated.slope), d, dz + c);
    });
  }
}

// Calls body.operator()<activation>().
template <typename Body>
void WithActivation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kRelu:
      return body.template operator()<Activation::kRelu>();
    case Activation::kGelu:
      return body.template operator()<Activation::kGelu>();
    case Activation::kGeluTanh:
      return body.template operator()<Activation::kGeluTanh>();
    case Activation::kSilu:
      return body.template operator()<Activation::kSilu>();
  }
}

}  // namespace

void ActivationForwardRows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  WithActivation(args.activation, [&]<Activation kActivation>() { ForwardRows<kActivation>(args, begin, end); });
}

void ActivationBackwardRows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  WithActivation(args.activation, [&]<Activation kActivation>() { BackwardRows<kActivation>(args, begin, end); });
}

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

constexpr int64_t kGrain = 4;  // rows a thread takes at least
HADAL_RANGE_OPERATION(ActivationForward, ActivationForwardRows, args.y.rows, kGrain);
HADAL_RANGE_OPERATION(ActivationBackward, ActivationBackwardRows, args.dy.rows, kGrain);
HADAL_RANGE_OPERATION(GluForward, GluForwardRows, args.y.rows, kGrain);
HADAL_RANGE_OPERATION(GluBackward, GluBackwardRows, args.dy.rows, kGrain);

}  // namespace hadal

#endif  // HWY_ONCE
