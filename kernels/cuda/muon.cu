#include "kernels/cuda/operations.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"
#include "kernels/cuda/warp_span.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

LaunchShape ShapeFor(int64_t elements) {
  return {.blocks_x = (elements + 8 * kThreads - 1) / (8 * kThreads), .threads = kThreads};
}

HADAL_DEVICE void MoveElement(const MuonMomentumScalars& s, float& gradient, float& momentum) {
  const float fresh = s.one_minus_decay * (s.gradient_scale * gradient);
  momentum = s.decay * momentum + fresh;
  gradient = s.nesterov ? fresh + s.decay * momentum : momentum;
}

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads)
    MomentumKernel(Vector gradients, Vector momenta, MuonMomentumScalars scalars) {
  const WarpSpan span = ThisWarpSpan(gradients.size);
  if (kAligned && span.whole()) {
    Eight gradient = LoadRuns(ViewOf(gradients), span), momentum = LoadRuns(ViewOf(momenta), span);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) MoveElement(scalars, gradient.v[i], momentum.v[i]);
    StoreRuns(ViewOf(gradients), span, gradient);
    StoreRuns(ViewOf(momenta), span, momentum);
  } else {
    span.ForSingles([&](int64_t i) {
      float gradient = Load(ViewOf(gradients) + i), momentum = Load(ViewOf(momenta) + i);
      MoveElement(scalars, gradient, momentum);
      Store(ViewOf(gradients) + i, gradient);
      Store(ViewOf(momenta) + i, momentum);
    });
  }
}

HADAL_DEVICE void StepElement(const MuonStepArgs& args, float direction, float& parameter) {
  const float decayed = parameter - args.decay * parameter;
  parameter = decayed - args.step_size * direction;
}

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) MuonStepKernel(MuonStepArgs args) {
  const WarpSpan span = ThisWarpSpan(args.parameter.size);
  if (kAligned && span.whole()) {
    Eight parameter = LoadRuns(ViewOf(args.parameter), span);
    const Eight direction = LoadRuns(ViewOf(args.direction), span);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) StepElement(args, direction.v[i], parameter.v[i]);
    StoreRuns(ViewOf(args.parameter), span, parameter);
    if (Given(args.rounded)) StoreRuns(ViewOf(args.rounded), span, parameter);
  } else {
    span.ForSingles([&](int64_t i) {
      float parameter = Load(ViewOf(args.parameter) + i);
      StepElement(args, Load(ViewOf(args.direction) + i), parameter);
      Store(ViewOf(args.parameter) + i, parameter);
      if (Given(args.rounded)) Store(ViewOf(args.rounded) + i, FromFloat<BFloat16>(parameter));
    });
  }
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ScaledKernel(ScaledArgs args) {
  const DevicePointer<const float> from = ViewOf(args.from).data;
  const DevicePointer<T> to = ViewOf<T>(args.to).data;
  const WarpSpan span = ThisWarpSpan(args.from.rows * args.from.columns);
  if (kAligned && span.whole()) {
    Eight values = LoadRuns(from, span);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) values.v[i] *= args.scale;
    StoreRuns(to, span, values);
  } else {
    span.ForSingles([&](int64_t i) { Store(to + i, FromFloat<T>(args.scale * Load(from + i))); });
  }
}

template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) PolynomialKernel(PolynomialArgs args) {
  const int64_t n = args.a.rows;
  ThisWarpSpan(n * n).ForSingles([&](int64_t i) {
    const float value = args.c1 * Load(ViewOf(args.a).data + i) + args.c2 * Load(ViewOf(args.square).data + i);
    Store(ViewOf<T>(args.to).data + i, FromFloat<T>(i % n == i / n ? args.c0 + value : value));
  });
}

}  // namespace

void MuonMomentum(StreamHandle stream, const MuonMomentumArgs& args) {
  if (args.gradient.size == 0) return;
  const bool aligned = On16Bytes(args.gradient, args.momentum);
  Launch(stream, ShapeFor(args.gradient.size), aligned ? MomentumKernel<true> : MomentumKernel<false>, args.gradient,
         args.momentum, MuonMomentumScalarsOf(args));
}

void MuonStep(StreamHandle stream, const MuonStepArgs& args) {
  if (args.parameter.size == 0) return;
  const bool aligned =
      On16Bytes(args.parameter) && On16Bytes(ViewOf(args.direction)) && On16Bytes(ViewOf(args.rounded));
  Launch(stream, ShapeFor(args.parameter.size), aligned ? MuonStepKernel<true> : MuonStepKernel<false>, args);
}

void Scaled(StreamHandle stream, const ScaledArgs& args) {
  const int64_t elements = args.from.rows * args.from.columns;
  if (elements == 0) return;
  const bool aligned = InAlignedEights(8, {args.from, args.to});
  WithElement(args.to.storage, [&]<typename T>(T) {
    Launch(stream, ShapeFor(elements), aligned ? ScaledKernel<T, true> : ScaledKernel<T, false>, args);
  });
}

void Polynomial(StreamHandle stream, const PolynomialArgs& args) {
  if (args.a.rows == 0) return;
  WithElement(args.to.storage,
              [&]<typename T>(T) { Launch(stream, ShapeFor(args.a.rows * args.a.rows), PolynomialKernel<T>, args); });
}

}  // namespace hadal::cuda
