#include "pipeline/run_health.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

constexpr LossSpikeOptions kOptions{.deviations = 4, .window = 10};

TEST(LossTrend, IsThePlainMeanAndVarianceWithinTheWindow) {
  const std::vector<double> losses = {7.0, 6.5, 6.7, 6.1, 5.9, 6.2, 5.5};
  LossTrend trend;
  double sum = 0, squares = 0;
  for (const double loss : losses) {
    trend = WithLoss(trend, loss, kOptions);
    sum += loss;
    squares += loss * loss;
  }
  const auto n = static_cast<double>(losses.size());
  EXPECT_EQ(trend.losses, 7);
  EXPECT_NEAR(trend.mean, sum / n, 1e-12);
  EXPECT_NEAR(trend.variance, squares / n - sum / n * sum / n, 1e-12);
}

// Beyond it: the sums themselves, with weights (1 − a)^age.
TEST(LossTrend, ForgetsExponentiallyBeyondTheWindow) {
  LossTrend trend{.losses = 1000, .mean = 3, .variance = 0};
  const double a = 0.1;
  std::vector<double> values = {3};
  std::vector<double> weights = {1};
  for (int i = 0; i < 40; ++i) {
    const double loss = 3 + std::sin(i);
    trend = WithLoss(trend, loss, kOptions);
    for (double& weight : weights) weight *= 1 - a;
    values.push_back(loss);
    weights.push_back(a);
  }
  double mean = 0, variance = 0;
  for (size_t i = 0; i < values.size(); ++i) mean += weights[i] * values[i];
  for (size_t i = 0; i < values.size(); ++i) variance += weights[i] * (values[i] - mean) * (values[i] - mean);
  EXPECT_NEAR(trend.mean, mean, 1e-12);
  EXPECT_NEAR(trend.variance, variance, 1e-12);
}

TEST(HighestLoss, IsInfiniteUntilTheWindowIsFullAndWhereTheOptionIsOff) {
  LossTrend trend{.losses = 9, .mean = 5, .variance = 0.25};
  EXPECT_TRUE(std::isinf(HighestLoss(trend, kOptions)));
  trend.losses = 10;
  EXPECT_DOUBLE_EQ(HighestLoss(trend, kOptions), 7);
  EXPECT_DOUBLE_EQ(HighestLoss(trend, {.deviations = 0.5, .window = 10}), 5.25);
  EXPECT_TRUE(std::isinf(HighestLoss(trend, {.deviations = 0, .window = 10})));
}

}  // namespace
}  // namespace hadal
