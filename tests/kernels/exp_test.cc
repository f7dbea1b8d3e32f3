#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/exp_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

// REQUIRES: count is a multiple of the widest vector.
void TestedExp(const float* x, int64_t count, float* y) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(Exp(d, hn::LoadU(d, x + i)), d, y + i);
}

void TestedExp2(const float* x, int64_t count, float* y) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(Exp2(d, hn::LoadU(d, x + i)), d, y + i);
}

void TestedLog(const float* x, int64_t count, float* y) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(Log(d, hn::LoadU(d, x + i)), d, y + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"

namespace hadal {

HWY_EXPORT(TestedExp);
HWY_EXPORT(TestedExp2);
HWY_EXPORT(TestedLog);

namespace {

using Function = void (*)(const float*, int64_t, float*);

// The largest error over a sweep of [low, high], in units in the last place of the exact result.
double LargestUlpError(Function function, double (*exact)(double), float low, float high) {
  constexpr int64_t kPoints = 1 << 18;
  std::vector<float> x(kPoints), y(kPoints);
  for (int64_t i = 0; i < kPoints; ++i) x[i] = static_cast<float>(low + (double{high} - low) * i / (kPoints - 1));
  function(x.data(), kPoints, y.data());
  double largest = 0;
  for (int64_t i = 0; i < kPoints; ++i) {
    const double expected = exact(x[i]);
    const double ulp = std::max(std::exp2(std::floor(std::log2(std::abs(expected))) - 23), 0x1p-149);
    largest = std::max(std::abs(y[i] - expected) / ulp, largest);  // NaN stays
  }
  return largest;
}

double ExactExp(double x) { return std::exp(x); }
double ExactExp2(double x) { return std::exp2(x); }
double ExactLog(double x) { return std::log(x); }

TEST(ExpTest, ErrsByLessThanTwoUlp) {
  testing::ForEachInstructionSet([] {
    EXPECT_LT(LargestUlpError(HWY_DYNAMIC_DISPATCH(TestedExp), ExactExp, -87.0f, 80.0f), 2.0);
    EXPECT_LT(LargestUlpError(HWY_DYNAMIC_DISPATCH(TestedExp), ExactExp, -1.0f, 0.0f), 2.0);
    EXPECT_LT(LargestUlpError(HWY_DYNAMIC_DISPATCH(TestedExp2), ExactExp2, -125.9f, 100.0f), 2.0);
    EXPECT_LT(LargestUlpError(HWY_DYNAMIC_DISPATCH(TestedExp2), ExactExp2, -1.0f, 0.0f), 2.0);
    EXPECT_LT(LargestUlpError(HWY_DYNAMIC_DISPATCH(TestedLog), ExactLog, 1.0f, 3.0f), 2.0);
    EXPECT_LT(LargestUlpError(HWY_DYNAMIC_DISPATCH(TestedLog), ExactLog, 0x1p-126f, 5000.0f), 2.0);
  });
}

TEST(ExpTest, ExtremeArguments) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {0, -0.0f, -126, -200, -1e10f, -3e38f, -kInfinity, kNaN, 0, 0, 0, 0, 0, 0, 0, 0};
  testing::ForEachInstructionSet([&] {
    for (const Function function : {HWY_DYNAMIC_DISPATCH(TestedExp), HWY_DYNAMIC_DISPATCH(TestedExp2)}) {
      std::vector<float> y(x.size());
      function(x.data(), static_cast<int64_t>(x.size()), y.data());
      EXPECT_EQ(y[0], 1.0f);
      EXPECT_EQ(y[1], 1.0f);
      for (int i = 3; i <= 6; ++i) EXPECT_EQ(y[i], 0.0f) << x[i];
      EXPECT_TRUE(std::isnan(y[7]));
    }
    std::vector<float> y(x.size());
    HWY_DYNAMIC_DISPATCH(TestedExp2)(x.data(), static_cast<int64_t>(x.size()), y.data());
    EXPECT_EQ(y[2], 0x1p-126f);
  });
}

}  // namespace
}  // namespace hadal

#endif  // HWY_ONCE
