#include "kernels/cuda/operations.h"

#include "kernels/cuda/dropout_draws.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

// act(t) and act'(t).
struct Activated {
  float value, slope;
};

HADAL_DEVICE Activated Gelu(float t) {
  const float x = t < 0.0f ? -t : t, bell = Exp(-0.5f * (x * x));
  const float k = 1.0f / MulAdd(kNormalTailScale, x, 1.0f);
  float sum = 0.0f;
  constexpr float kTail[] = {kNormalTail[5], kNormalTail[4], kNormalTail[3],
                             kNormalTail[2], kNormalTail[1], kNormalTail[0]};
  HADAL_UNROLL for (int j = 0; j < 6; ++j) sum = MulAdd(sum, k, kTail[j]);
  const float tail = sum * k * bell, share = t < 0.0f ? tail : 1.0f - tail;
  return {t * share, MulAdd(t * bell, 0.398942280f, share)};
}

// t·σ(a) and its slope, where a_slope is the derivative of a by t.
HADAL_DEVICE Activated TimesSigmoid(float t, float a, float a_slope) {
  const float power = Exp(a < 0.0f ? a : -a), share = (a < 0.0f ? power : 1.0f) / (1.0f + power);
  return {t * share, MulAdd(t, share * (1.0f - share) * a_slope, share)};
}

HADAL_DEVICE Activated Activate(Activation activation, float t) {
  switch (activation) {
    case Activation::kRelu:
      return {t < 0.0f ? 0.0f : t, t > 0.0f ? 1.0f : 0.0f};
    case Activation::kGelu:
      return Gelu(t);
    case Activation::kGeluTanh: {
      const float square = t * t, two_c = 1.59576912f;  // 2·sqrt(2/π)
      return TimesSigmoid(t, two_c * t * MulAdd(0.044715f, square, 1.0f), two_c * MulAdd(0.134145f, square, 1.0f));
    }
    default:
      return TimesSigmoid(t, t, 1.0f);
  }
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads)
    ActivationForwardKernel(ActivationForwardArgs args, DeviceDropout dropout) {
  const int64_t width = args.y.columns;
  const EightColumns at = ThisEight(args.y.rows, width);
  if (at.count == 0) return;
  Eight value = LoadEight<kAligned>(ViewOf<T>(args.z).row(at.row) + at.column, at.count), linear;
  if (args.gated) linear = LoadEight<kAligned>(ViewOf<T>(args.z).row(at.row) + (width + at.column), at.count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    value.v[c] = Activate(args.activation, value.v[c]).value;
    if (args.gated) value.v[c] *= linear.v[c];
  }
  if (dropout.active()) ApplyDropout<kAligned>(dropout, Load(dropout.position), at.row * width + at.column, value);
  StoreEight<kAligned>(ViewOf<T>(args.y).row(at.row) + at.column, value, at.count);
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads)
    ActivationBackwardKernel(ActivationBackwardArgs args, DeviceDropout dropout) {
  const int64_t width = args.dy.columns;
  const EightColumns at = ThisEight(args.dy.rows, width);
  if (at.count == 0) return;
  const Eight z = LoadEight<kAligned>(ViewOf<T>(args.z).row(at.row) + at.column, at.count);
  Eight gradient = LoadEight<kAligned>(ViewOf<T>(args.dy).row(at.row) + at.column, at.count), linear, d_linear;
  if (args.gated) linear = LoadEight<kAligned>(ViewOf<T>(args.z).row(at.row) + (width + at.column), at.count);
  if (dropout.active()) ApplyDropout<kAligned>(dropout, Load(dropout.position), at.row * width + at.column, gradient);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    const Activated activated = Activate(args.activation, z.v[c]);
    if (args.gated) {
      d_linear.v[c] = gradient.v[c] * activated.value;
      gradient.v[c] *= linear.v[c];
    }
    gradient.v[c] *= activated.slope;
  }
  const DevicePointer<T> dz = ViewOf<T>(args.dz).row(at.row) + at.column;
  if (args.gated) StoreEight<kAligned>(dz + width, d_linear, at.count);
  StoreEight<kAligned>(dz, gradient, at.count);
}

}  // namespace

void ActivationForward(StreamHandle stream, const ActivationForwardArgs& args) {
  if (args.y.rows == 0) return;
  const bool aligned = InAlignedEights(args.y.columns, {args.z, args.y});
  WithElement(args.z.storage, [&]<typename T>(T) {
    Launch(stream, ShapeOfEights(args.y.rows, args.y.columns),
           aligned ? ActivationForwardKernel<T, true> : ActivationForwardKernel<T, false>, args,
           DeviceDropoutOf(args.dropout));
  });
}

void ActivationBackward(StreamHandle stream, const ActivationBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  const bool aligned = InAlignedEights(args.dy.columns, {args.z, args.dy, args.dz});
  WithElement(args.z.storage, [&]<typename T>(T) {
    Launch(stream, ShapeOfEights(args.dy.rows, args.dy.columns),
           aligned ? ActivationBackwardKernel<T, true> : ActivationBackwardKernel<T, false>, args,
           DeviceDropoutOf(args.dropout));
  });
}

}  // namespace hadal::cuda
