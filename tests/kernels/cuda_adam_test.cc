#include "kernels/cuda/adam.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/adam_reference.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

using cuda::BFloat16;
using testing::DeviceVectorOf;
using testing::KernelDevice;
using testing::NearReference;
using testing::NormalValues;
using testing::Rounded;
using testing::SameBits;

struct State {
  std::vector<float> parameter, first_moment, second_moment, rounded;
  int32_t non_finite = 0;
};

State MakeState(int64_t count) {
  State state = {NormalValues(count, 1), NormalValues(count, 2, 0.1f), NormalValues(count, 3, 0.1f)};
  for (float& v : state.second_moment) v *= v;
  return state;
}

AdamArgs TypicalArgs() {
  AdamArgs args;
  args.learning_rate = 1e-2;
  args.weight_decay = 0.05;
  args.gradient_scale = 0.7;
  args.update = 3;
  return args;
}

// One step of arrays that start `offset` floats behind a boundary.
State Step(const AdamArgs& args, State state, const std::vector<float>& gradient, int64_t offset = 0, uint64_t seed = 1,
           bool apply = true) {
  KernelDevice device(seed);
  const int64_t size = static_cast<int64_t>(gradient.size());
  const auto shifted = [&](std::vector<float> values) {
    values.insert(values.begin(), offset, -1.0f);
    return values;
  };
  DeviceVectorOf<float> parameter(device, shifted(state.parameter)), g(device, shifted(gradient));
  DeviceVectorOf<float> first(device, shifted(state.first_moment)), second(device, shifted(state.second_moment));
  DeviceVectorOf<BFloat16> rounded(device, size);
  DeviceVectorOf<int32_t> non_finite(device, std::vector<int32_t>{0});
  cuda::AdamScalars scalars = cuda::AdamScalarsOf(args);
  scalars.apply = apply;
  DeviceVectorOf<cuda::AdamScalars> device_scalars(device, {scalars});
  cuda::AdamStep(device.stream(), {.size = size,
                                   .parameter = parameter.data() + offset,
                                   .gradient = g.data() + offset,
                                   .first_moment = first.data() + offset,
                                   .second_moment = second.data() + offset,
                                   .rounded = rounded.data(),
                                   .scalars = device_scalars.data(),
                                   .non_finite = non_finite.data()});
  const auto read = [&](const DeviceVectorOf<float>& from) {
    std::vector<float> values = from.Read();
    for (int64_t i = 0; i < offset; ++i) EXPECT_EQ(values[i], -1.0f);
    values.erase(values.begin(), values.begin() + offset);
    return values;
  };
  state = {read(parameter), read(first), read(second)};
  for (const BFloat16 value : rounded.Read()) state.rounded.push_back(testing::Value(value));
  state.non_finite = non_finite.Read()[0];
  return state;
}

void ExpectReference(const AdamArgs& args, int64_t count) {
  SCOPED_TRACE(::testing::Message() << count << " elements, update " << args.update);
  const State before = MakeState(count);
  const std::vector<float> gradient = NormalValues(count, 4, 0.3f);
  testing::AdamReferenceState reference = {{before.parameter.begin(), before.parameter.end()},
                                           {before.first_moment.begin(), before.first_moment.end()},
                                           {before.second_moment.begin(), before.second_moment.end()}};
  testing::AdamReference(args, gradient, reference);
  const State after = Step(args, before, gradient);
  EXPECT_TRUE(NearReference(after.first_moment, reference.first_moment, 0.1, 4));
  EXPECT_TRUE(NearReference(after.second_moment, reference.second_moment, 0.01, 4));
  EXPECT_TRUE(NearReference(after.parameter, reference.parameter, 1, 4));
  EXPECT_TRUE(SameBits(after.rounded, Rounded<BFloat16>(after.parameter)));
  EXPECT_EQ(after.non_finite, 0);
}

TEST(CudaAdamTest, MatchesTheReference) {
  for (const int64_t count : {1, 7, 8, 9, 100, 256, 2047, 2049, 5000}) ExpectReference(TypicalArgs(), count);
  AdamArgs first = TypicalArgs();
  first.update = 1;
  ExpectReference(first, 100);
  AdamArgs late = TypicalArgs();
  late.update = 100000;
  late.weight_decay = 0;
  ExpectReference(late, 100);
}

TEST(CudaAdamTest, PlaceAndOrderChangeNoBit) {
  const State before = MakeState(3001);
  const std::vector<float> gradient = NormalValues(3001, 4, 0.3f);
  const State expected = Step(TypicalArgs(), before, gradient);
  for (const int64_t offset : {1, 3, 4}) {
    const State after = Step(TypicalArgs(), before, gradient, offset, /*seed=*/7);
    EXPECT_TRUE(SameBits(after.parameter, expected.parameter));
    EXPECT_TRUE(SameBits(after.first_moment, expected.first_moment));
    EXPECT_TRUE(SameBits(after.second_moment, expected.second_moment));
    EXPECT_TRUE(SameBits(after.rounded, expected.rounded));
  }
}

TEST(CudaAdamTest, AStepThatIsNotAppliedChangesNothing) {
  const State before = MakeState(100);
  const State after = Step(TypicalArgs(), before, std::vector<float>(100, NAN), 0, 1, /*apply=*/false);
  EXPECT_TRUE(SameBits(after.parameter, before.parameter));
  EXPECT_TRUE(SameBits(after.first_moment, before.first_moment));
  EXPECT_TRUE(SameBits(after.second_moment, before.second_moment));
  EXPECT_TRUE(std::isnan(after.rounded[0])) << "written though the step was not applied";
  EXPECT_EQ(after.non_finite, 0);
}

TEST(CudaAdamTest, AParameterThatIsNotFiniteShows) {
  for (const int64_t place : {0, 9, 2050}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      State before = MakeState(2051);
      before.parameter[place] = value;
      EXPECT_EQ(Step(TypicalArgs(), before, NormalValues(2051, 4)).non_finite, 1) << place << ", " << value;
    }
  }
}

}  // namespace
}  // namespace hadal
