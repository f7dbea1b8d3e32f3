#include "kernels/cuda/sum_of_squares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

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

TEST(CudaSumOfSquaresTest, HoldsTheLargestFloats) {
  const float largest = std::numeric_limits<float>::max();
  const double square = double{largest} * largest;
  EXPECT_NEAR(Sums(std::vector<float>(1000, largest), {0, 1000})[0] / (1000 * square), 1, 1e-14);
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
