#include "kernels/cpu/operations.h"

#include <algorithm>

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

// Calls body(d, c, factor) for the columns of a row of width W; the dropout factors are 1 without dropout.
template <typename Body>
HWY_INLINE void ForRow(const Dropout& dropout, DropoutWindow& window, int64_t row, int64_t width, const Body& body) {
  for (int64_t first = 0; first < width; first += DropoutWindow::kCapacity) {
    const int64_t last = std::min(width, first + DropoutWindow::kCapacity);
    const float* factors = dropout.active() ? window.Get(row * width + first, last - first) - first : nullptr;
    ForColumns(first, last, [&](auto d, int64_t c) HWY_ATTR {
      body(d, c, factors == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, factors + c));
    });
  }
}

template <Activation kActivation>
void ForwardRows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.columns;
  DropoutWindow window(args.dropout, end * width);
  for (int64_t row = begin; row < end; ++row) {
    const float* const z = args.z.floats().row(row);
    float* const y = args.y.floats().row(row);
    ForRow(args.dropout, window, row, width, [&](auto d, int64_t c, auto factor) HWY_ATTR {
      auto value = Activate<kActivation>(d, hn::LoadU(d, z + c)).value;
      if (args.gated) value = hn::Mul(value, hn::LoadU(d, z + width + c));
      hn::StoreU(hn::Mul(value, factor), d, y + c);
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
    ForRow(args.dropout, window, row, width, [&](auto d, int64_t c, auto factor) HWY_ATTR {
      const auto activated = Activate<kActivation>(d, hn::LoadU(d, z + c));
      auto gradient = hn::Mul(hn::LoadU(d, dy + c), factor);
      if (args.gated) {  // dy[c] has been read and may lie where d z_2[c] is written
        hn::StoreU(hn::Mul(gradient, activated.value), d, dz + width + c);
        gradient = hn::Mul(gradient, hn::LoadU(d, z + width + c));
      }
      hn::StoreU(hn::Mul(gradient, activated.slope), d, dz + c);
    });
  }
}

}  // namespace

void ActivationForwardRows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  switch (args.activation) {
    case Activation::kRelu:
      return ForwardRows<Activation::kRelu>(args, begin, end);
    case Activation::kGelu:
      return ForwardRows<Activation::kGelu>(args, begin, end);
    case Activation::kGeluTanh:
      return ForwardRows<Activation::kGeluTanh>(args, begin, end);
    case Activation::kSilu:
      return ForwardRows<Activation::kSilu>(args, begin, end);
  }
}

void ActivationBackwardRows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  switch (args.activation) {
    case Activation::kRelu:
      return BackwardRows<Activation::kRelu>(args, begin, end);
    case Activation::kGelu:
      return BackwardRows<Activation::kGelu>(args, begin, end);
    case Activation::kGeluTanh:
      return BackwardRows<Activation::kGeluTanh>(args, begin, end);
    case Activation::kSilu:
      return BackwardRows<Activation::kSilu>(args, begin, end);
  }
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
namespace {
constexpr int64_t kGrain = 4;  // rows a thread takes at least
HWY_EXPORT(ActivationForwardRows);
HWY_EXPORT(ActivationBackwardRows);
HWY_EXPORT(GluForwardRows);
HWY_EXPORT(GluBackwardRows);
}  // namespace

void cpu::ActivationForward(const Stream& stream, const ActivationForwardArgs& args) {
  ForRanges(stream, args.y.rows, kGrain, HWY_DYNAMIC_DISPATCH(ActivationForwardRows), args);
}

void cpu::ActivationBackward(const Stream& stream, const ActivationBackwardArgs& args) {
  ForRanges(stream, args.dy.rows, kGrain, HWY_DYNAMIC_DISPATCH(ActivationBackwardRows), args);
}

void cpu::GluForward(const Stream& stream, const GluForwardArgs& args) {
  ForRanges(stream, args.y.rows, kGrain, HWY_DYNAMIC_DISPATCH(GluForwardRows), args);
}

void cpu::GluBackward(const Stream& stream, const GluBackwardArgs& args) {
  ForRanges(stream, args.dy.rows, kGrain, HWY_DYNAMIC_DISPATCH(GluBackwardRows), args);
}

}  // namespace hadal

#endif  // HWY_ONCE
