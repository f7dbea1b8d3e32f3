#include "kernels/cuda/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/cuda/sum_of_squares.h"
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
             const Variation& variation) {
  const auto& [seed, offset] = variation;
  KernelDevice device(seed);
  const int64_t size = std::ssize(gradient);
  const auto parameter = Guarded(device, before.parameter, offset), g = Guarded(device, gradient, offset);
  const auto first = Guarded(device, before.first_moment, offset);
  const auto second = Guarded(device, before.second_moment, offset);
  DeviceVectorOf<BFloat16> rounded(device, size);
  DeviceVectorOf<AdamScalars> scalars(device, {AdamScalarsOf(args)});
  AdamArgs step = args;
  step.parameter = {parameter.data() + offset, size}, step.gradient = {g.data() + offset, size};
  step.first_moment = {first.data() + offset, size}, step.second_moment = {second.data() + offset, size};
  step.rounded = rounded.view();
  cuda::AdamStep(device.stream(), step, scalars.view());
  Outcome outcome = {{BetweenGuards(parameter, offset), BetweenGuards(first, offset), BetweenGuards(second, offset)}};
  for (const BFloat16 value : rounded.Read()) outcome.rounded.push_back(Value(value));
  return outcome;
}

// A step also writes what products read.
AdamState CheckedStep(const AdamArgs& scalars, const AdamState& before, const std::vector<float>& gradient,
                      int variation) {
  const Outcome after = Step(scalars, before, gradient, kVariations[variation]);
  EXPECT_TRUE(SameBits(after.rounded, Rounded<BFloat16>(after.state.parameter)));
  return after.state;
}

const AdamBackend kBackend = {.name = "Float", .step = CheckedStep, .variations = std::size(kVariations)};
INSTANTIATE_TEST_SUITE_P(Cuda, AdamConformance, ::testing::Values(kBackend), BackendName());

std::vector<double> SumsOf(const std::vector<float>& x, const std::vector<cuda::SquaresRange>& ranges,
                           uint64_t seed = 1) {
  KernelDevice device(seed);
  const auto slices = std::ssize(ranges);
  int64_t longest = 0;
  for (const cuda::SquaresRange& range : ranges) longest = std::max(longest, range.end - range.begin);
  DeviceVectorOf<float> values(device, x);
  DeviceVectorOf<cuda::SquaresRange> device_ranges(device, ranges);
  DeviceVectorOf<double> partials(device, cuda::SumOfSquaresPartials(slices, longest)), sums(device, slices);
  cuda::SumOfSquares(device.stream(), {.x = values.data(),
                                       .slices = slices,
                                       .ranges = device_ranges.data(),
                                       .max_slice_size = longest,
                                       .partials = partials.data(),
                                       .sums = sums.data()});
  return sums.Read();
}

// Of slices that lie back to back: offsets[n] … offsets[n + 1].
std::vector<double> Sums(const std::vector<float>& x, const std::vector<int64_t>& offsets, uint64_t seed = 1) {
  std::vector<cuda::SquaresRange> ranges;
  for (size_t n = 0; n + 1 < offsets.size(); ++n) ranges.push_back({offsets[n], offsets[n + 1]});
  return SumsOf(x, ranges, seed);
}

TEST(CudaSumOfSquaresTest, SumsEachSlice) {
  const std::vector<int64_t> offsets = {0, 1, 1, 8, 300, 300 + cuda::kSquaresChunk, 310 + 3 * cuda::kSquaresChunk};
  const std::vector<float> x = NormalValues(offsets.back(), 1, 3.7f);
  const std::vector<double> sums = Sums(x, offsets);
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    long double expected = 0;
    for (int64_t i = offsets[n]; i < offsets[n + 1]; ++i) expected += static_cast<long double>(x[i]) * x[i];
    EXPECT_NEAR(sums[n], static_cast<double>(expected), 1e-14 * static_cast<double>(expected)) << "slice " << n;
  }
  EXPECT_EQ(sums, Sums(x, offsets, /*seed=*/2)) << "bits depend on the order of threads";
}

// What makes a norm independent of the layout: a slice's bits depend neither on its place nor on the other slices.
TEST(CudaSumOfSquaresTest, ASliceAloneHasTheSameBits) {
  const std::vector<float> x = NormalValues(30000, 2);
  const std::vector<double> together = Sums(x, {0, 5001, 30000});
  EXPECT_EQ(Sums({x.begin() + 5001, x.end()}, {0, 24999})[0], together[1]);
}

TEST(CudaSumOfSquaresTest, SlicesMayLieInAnyOrderWithGaps) {
  const std::vector<float> x = NormalValues(30000, 2);
  const std::vector<double> ascending = SumsOf(x, {{3, 5001}, {6000, 30000}});
  EXPECT_EQ(SumsOf(x, {{6000, 30000}, {3, 5001}}), (std::vector<double>{ascending[1], ascending[0]}));
}

TEST(CudaSumOfSquaresTest, ANonFiniteElementShowsInItsSlice) {
  for (const int64_t place : {0, 37, 99}) {
    std::vector<float> x(200, 1.0f);
    x[place] = NAN;
    EXPECT_TRUE(std::isnan(Sums(x, {0, 100, 200})[0]));
    x[place] = -std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(Sums(x, {0, 100, 200})[0]));
    EXPECT_EQ(Sums(x, {0, 100, 200})[1], 100);
  }
}

}  // namespace
}  // namespace hadal::testing
