#include "pipeline/learning_rate.h"

#include <cmath>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(LearningRateTest, InverseSqrtIsFairseqs) {
  const RateOptions options{.peak = 5e-4, .warmup_updates = 4000, .warmup_initial_rate = 1e-7};
  EXPECT_DOUBLE_EQ(LearningRate(options, 1, 0), 1e-7);
  EXPECT_DOUBLE_EQ(LearningRate(options, 2001, 0), 1e-7 + 2000 * (5e-4 - 1e-7) / 4000);
  EXPECT_DOUBLE_EQ(LearningRate(options, 4001, 0), 5e-4);
  EXPECT_DOUBLE_EQ(LearningRate(options, 16001, 0), 2.5e-4);
}

TEST(LearningRateTest, WarmUpOfZeroStartsAtThePeak) {
  const RateOptions inverse{.peak = 1e-3, .warmup_updates = 0};
  EXPECT_DOUBLE_EQ(LearningRate(inverse, 1, 0), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRate(inverse, 101, 0), 1e-4);
  const RateOptions polynomial{.schedule = RateSchedule::kPolynomial, .peak = 1e-3, .warmup_updates = 0};
  EXPECT_DOUBLE_EQ(LearningRate(polynomial, 1, 100), 1e-3);
}

TEST(LearningRateTest, PolynomialDecaysToItsEnd) {
  const RateOptions options{
      .schedule = RateSchedule::kPolynomial, .peak = 1e-3, .warmup_updates = 10, .end_rate = 1e-5, .power = 2};
  EXPECT_DOUBLE_EQ(LearningRate(options, 6, 110), 5e-4);
  EXPECT_DOUBLE_EQ(LearningRate(options, 11, 110), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRate(options, 61, 110), (1e-3 - 1e-5) * 0.25 + 1e-5);
  EXPECT_DOUBLE_EQ(LearningRate(options, 111, 110), 1e-5);
  EXPECT_DOUBLE_EQ(LearningRate(options, 500, 110), 1e-5);
}

TEST(LearningRateTest, PolynomialOfARunThatEndsInItsWarmUpStaysAtThePeak) {
  const RateOptions options{
      .schedule = RateSchedule::kPolynomial, .peak = 1e-3, .warmup_updates = 10, .end_rate = 1e-5};
  for (const int64_t total : {5, 10}) {
    EXPECT_DOUBLE_EQ(LearningRate(options, 6, total), 5e-4) << total;
    EXPECT_DOUBLE_EQ(LearningRate(options, 11, total), 1e-3) << total;
    EXPECT_DOUBLE_EQ(LearningRate(options, 15, total), 1e-3) << total;
  }
}

TEST(LearningRateTest, TFixupNeedsNoWarmUp) {
  const RateOptions options{.schedule = RateSchedule::kTFixup, .peak = 5e-4, .warmup_updates = 100};
  EXPECT_DOUBLE_EQ(LearningRate(options, 1, 0), 5e-4);
  EXPECT_DOUBLE_EQ(LearningRate(options, 12001, 0), 2.5e-4);
}

}  // namespace
}  // namespace hadal
