#include "kernels/cuda/operations.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"
#include "kernels/cuda/warp_span.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

// Updates one element; the CPU's operations in the same order.
HADAL_DEVICE void UpdateElement(const AdamScalars& s, float gradient, float& parameter, float& first, float& second) {
  const float g = gradient * s.gradient_scale;
  first = MulAdd(s.beta1, first, s.one_minus_beta1 * g);
  second = MulAdd(s.beta2, second, s.one_minus_beta2 * (g * g));
  const float direction = first / (SquareRoot(second) + s.epsilon);
  parameter = MulAdd(-s.decay, parameter, parameter);
  parameter = MulAdd(-s.step_size, direction, parameter);
}

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) AdamKernel(AdamArgs args, DevicePointer<const AdamScalars> of_step) {
  const AdamScalars scalars = Load(of_step);
  const WarpSpan span = ThisWarpSpan(args.parameter.size);
  if (kAligned && span.whole()) {
    const Eight gradient = LoadRuns(ViewOf(args.gradient), span);
    Eight parameter = LoadRuns(ViewOf(args.parameter), span);
    Eight m = LoadRuns(ViewOf(args.first_moment), span);
    Eight v = LoadRuns(ViewOf(args.second_moment), span);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) UpdateElement(scalars, gradient.v[i], parameter.v[i], m.v[i], v.v[i]);
    StoreRuns(ViewOf(args.parameter), span, parameter);
    StoreRuns(ViewOf(args.first_moment), span, m);
    StoreRuns(ViewOf(args.second_moment), span, v);
    if (Given(args.rounded)) StoreRuns(ViewOf(args.rounded), span, parameter);
  } else {
    span.ForSingles([&](int64_t i) {
      float parameter = Load(ViewOf(args.parameter) + i), m = Load(ViewOf(args.first_moment) + i),
            v = Load(ViewOf(args.second_moment) + i);
      UpdateElement(scalars, Load(ViewOf(args.gradient) + i), parameter, m, v);
      Store(ViewOf(args.parameter) + i, parameter);
      Store(ViewOf(args.first_moment) + i, m);
      Store(ViewOf(args.second_moment) + i, v);
      if (Given(args.rounded)) Store(ViewOf(args.rounded) + i, FromFloat<BFloat16>(parameter));
    });
  }
}

}  // namespace

void AdamStep(StreamHandle stream, const AdamArgs& args, DevicePointer<const AdamScalars> scalars) {
  if (args.parameter.size == 0) return;
  HADAL_CHECK(static_cast<bool>(scalars));
  const bool aligned = On16Bytes(args.parameter, args.first_moment, args.second_moment) &&
                       On16Bytes(ViewOf(args.gradient)) && On16Bytes(ViewOf(args.rounded));
  const int64_t blocks = (args.parameter.size + 8 * kThreads - 1) / (8 * kThreads);
  Launch(stream, {.blocks_x = blocks, .threads = kThreads}, aligned ? AdamKernel<true> : AdamKernel<false>, args,
         scalars);
}

}  // namespace hadal::cuda
