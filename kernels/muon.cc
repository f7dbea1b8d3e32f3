#include "kernels/muon.h"

#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

constexpr int64_t kGrain = 4096;  // elements

}  // namespace

void MuonMomentum(const Stream& stream, const MuonMomentumArgs& args) {
  HADAL_CHECK_EQ(args.momentum.size, args.gradient.size);
  HADAL_CHECK(args.decay >= 0 && args.decay < 1);
  if (stream.device() != nullptr) return stream.device()->kernels().muon_momentum(stream, args);
  stream.ForRanges(args.gradient.size, kGrain, [&](int64_t begin, int64_t end) {
    const MuonMomentumScalars s = MuonMomentumScalarsOf(args);
    float* const gradient = args.gradient.data;
    float* const momentum = args.momentum.data;
    for (int64_t i = begin; i < end; ++i) {
      const float fresh = s.one_minus_decay * (s.gradient_scale * gradient[i]);
      momentum[i] = s.decay * momentum[i] + fresh;
      gradient[i] = s.nesterov ? fresh + s.decay * momentum[i] : momentum[i];
    }
  });
}

void MuonStep(const Stream& stream, const MuonStepArgs& args) {
  HADAL_CHECK_EQ(args.direction.size, args.parameter.size);
  if (!args.rounded.empty()) HADAL_CHECK_EQ(args.rounded.size, args.parameter.size);
  if (stream.device() != nullptr) return stream.device()->kernels().muon_step(stream, args);
  HADAL_CHECK(args.rounded.empty());
  stream.ForRanges(args.parameter.size, kGrain, [&](int64_t begin, int64_t end) {
    const float decay = args.decay, step_size = args.step_size;
    float* const parameter = args.parameter.data;
    const float* const direction = args.direction.data;
    for (int64_t i = begin; i < end; ++i) {
      const float decayed = parameter[i] - decay * parameter[i];
      parameter[i] = decayed - step_size * direction[i];
    }
  });
}

}  // namespace hadal
