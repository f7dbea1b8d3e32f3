#include "kernels/sum_of_squares.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "runtime/arena.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

// The header's order of summation, one element at a time.
double OrderedSum(const float* x, int64_t count) {
  double s[8] = {};
  for (int64_t i = 0; i < count; ++i) s[i % 8] += double{x[i]} * x[i];
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

TEST(SumOfSquaresTest, GivesTheStatedBitsOnEveryInstructionSet) {
  const std::vector<float> x = NormalValues(2050, /*seed=*/1, 3.7f);
  ForEachInstructionSet([&] {
    for (const int64_t count : {0, 1, 7, 8, 9, 15, 16, 100, 1000, 2047}) {
      for (const int64_t misalignment : {0, 1, 3}) {
        EXPECT_EQ(SumOfSquares({x.data() + misalignment, count}), OrderedSum(x.data() + misalignment, count))
            << count << " elements from " << misalignment;
      }
    }
  });
}

TEST(SumOfSquaresTest, ANonFiniteElementShows) {
  ForEachInstructionSet([] {
    for (const int64_t place : {0, 5, 16, 20}) {
      std::vector<float> x(21, 1.0f);
      x[place] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(SumOfSquares({x.data(), 21})));
      x[place] = -std::numeric_limits<float>::infinity();
      EXPECT_TRUE(std::isinf(SumOfSquares({x.data(), 21})));
    }
  });
}

// The first launch's slices are empty, which costs the least.
TEST(SumOfSquaresTest, ADeviceSumsMoreSlicesThanALaunchTakes) {
  constexpr int64_t kEmpty = 1024;
  const std::vector<float> x = {1, 2, 3, 4, 5};
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/1);
  const Stream stream = Stream::On(*device, 1);
  ArenaLayout layout;
  const ArenaSlice place = layout.Reserve<float>("x", std::ssize(x));
  const Arena arena = *Arena::Allocate(layout, device.get());
  float* const values = arena.Get<float>(place);
  stream.FromHost(values, x.data(), place.bytes);
  std::vector<SquaresSlice> slices(kEmpty, {.x = {values, 0}});
  std::vector<double> expected(kEmpty, 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    slices.push_back({.x = {values + i, 1}});
    expected.push_back(double{x[i]} * x[i]);
  }
  std::vector<double> sums(slices.size(), -1.0);
  SumsOfSquares(stream, {.slices = slices, .sums = sums});
  EXPECT_EQ(sums, expected);
}

}  // namespace
}  // namespace hadal::testing
