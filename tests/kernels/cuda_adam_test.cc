#include "kernels/cuda/adam.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/adam_conformance.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

constexpr float kGuard = -1.0f;
constexpr int64_t kBehind = 3;  // guards

struct Outcome {
  AdamState state;
  std::vector<float> rounded;
  int32_t non_finite = 0;
};

struct Variation {
  uint64_t seed;
  int64_t offset;  // of each vector, in floats behind a boundary
};
constexpr Variation kVariations[] = {{1, 0}, {2, 0}, {7, 1}, {7, 3}, {7, 4}};

// `values` on the device, with guards before and behind.
DeviceVectorOf<float> Guarded(KernelDevice& device, std::vector<float> values, int64_t offset) {
  values.insert(values.begin(), offset, kGuard);
  values.insert(values.end(), kBehind, kGuard);
  return {device, values};
}

std::vector<float> BetweenGuards(const DeviceVectorOf<float>& from, int64_t offset) {
  const std::vector<float> all = from.Read();
  const auto first = all.begin() + offset, last = all.end() - kBehind;
  EXPECT_EQ(std::vector<float>(all.begin(), first), std::vector<float>(offset, kGuard));
  EXPECT_EQ(std::vector<float>(last, all.end()), std::vector<float>(kBehind, kGuard));
  return {first, last};
}

Outcome Step(const AdamArgs& args, const AdamState& before, const std::vector<float>& gradient,
             const Variation& variation = {1, 0}, bool apply = true) {
  const auto& [seed, offset] = variation;
  KernelDevice device(seed);
  const int64_t size = std::ssize(gradient);
  const auto parameter = Guarded(device, before.parameter, offset), g = Guarded(device, gradient, offset);
  const auto first = Guarded(device, before.first_moment, offset);
  const auto second = Guarded(device, before.second_moment, offset);
  DeviceVectorOf<BFloat16> rounded(device, size);
  DeviceVectorOf<int32_t> non_finite(device, std::vector<int32_t>{0});
  cuda::AdamScalars scalars = cuda::AdamScalarsOf(args);
  scalars.apply = apply;
  DeviceVectorOf<cuda::AdamScalars> device_scalars(device, {scalars});
  AdamArgs step = args;
  step.parameter = {parameter.data() + offset, size}, step.gradient = {g.data() + offset, size};
  step.first_moment = {first.data() + offset, size}, step.second_moment = {second.data() + offset, size};
  step.rounded = rounded.view();
  cuda::AdamStep(device.stream(), step, device_scalars.view(), non_finite.view());
  Outcome outcome = {{BetweenGuards(parameter, offset), BetweenGuards(first, offset), BetweenGuards(second, offset)}};
  for (const BFloat16 value : rounded.Read()) outcome.rounded.push_back(Value(value));
  outcome.non_finite = non_finite.Read()[0];
  return outcome;
}

// A step that is applied also writes what products read, and says that all is finite.
AdamState AppliedStep(const AdamArgs& scalars, const AdamState& before, const std::vector<float>& gradient,
                      int variation) {
  const Outcome after = Step(scalars, before, gradient, kVariations[variation]);
  EXPECT_TRUE(SameBits(after.rounded, Rounded<BFloat16>(after.state.parameter)));
  EXPECT_EQ(after.non_finite, 0);
  return after.state;
}

const AdamBackend kBackend = {.name = "Float", .step = AppliedStep, .variations = std::size(kVariations)};
INSTANTIATE_TEST_SUITE_P(Cuda, AdamConformance, ::testing::Values(kBackend), BackendName());

TEST(CudaAdamTest, AStepThatIsNotAppliedChangesNothing) {
  const AdamState before = MakeAdamState(100);
  const Outcome after = Step(TypicalAdamArgs(), before, std::vector<float>(100, NAN), {1, 0}, /*apply=*/false);
  EXPECT_TRUE(SameBits(after.state.parameter, before.parameter));
  EXPECT_TRUE(SameBits(after.state.first_moment, before.first_moment));
  EXPECT_TRUE(SameBits(after.state.second_moment, before.second_moment));
  EXPECT_TRUE(std::isnan(after.rounded[0])) << "written though the step was not applied";
  EXPECT_EQ(after.non_finite, 0);
}

TEST(CudaAdamTest, AParameterThatIsNotFiniteShows) {
  for (const int64_t place : {0, 9, 2050}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      AdamState before = MakeAdamState(2051);
      before.parameter[place] = value;
      EXPECT_EQ(Step(TypicalAdamArgs(), before, MakeAdamGradient(2051)).non_finite, 1) << place << ", " << value;
    }
  }
}

}  // namespace
}  // namespace hadal::testing
