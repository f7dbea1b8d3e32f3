#include <cmath>

#include "gmock/gmock.h"
#include "pipeline/learning_rate.h"
#include "pipeline/run_health.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const LossTrend kTrend{.losses = 200, .mean = 2, .variance = 0.25};

StepResult Applied() { return {.applied = true}; }

StepResult NotFinite(int32_t parameter = -1) {
  StepResult result;
  result.gradient.finite = false;
  result.gradient.first_bad_parameter = parameter;
  return result;
}

class RunHealthTest : public testing::Test {
 protected:
  const ModelPlan plan_ = TinyPlan({.d_model = 16, .d_ff = 32, .heads = 2, .vocabulary = 50});
  RunHealth health_{plan_, {.skipped_steps = 3}};

  void Skip(int steps) {
    for (int i = 0; i < steps; ++i) health_.AfterStep(NotFinite(), kTrend, "");
  }
};

TEST_F(RunHealthTest, AnAppliedStepIsNotWorthAWord) {
  EXPECT_EQ(health_.AfterStep(Applied(), kTrend, ""), "");
  EXPECT_FALSE(health_.must_go_back());
}

TEST_F(RunHealthTest, SaysWhatWasNotFinite) {
  EXPECT_THAT(
      health_.AfterStep(NotFinite(1), kTrend, "forward, decoder layer 0"),
      AllOf(HasSubstr("the gradient of " + plan_.ParameterName(1)), HasSubstr("1 in a row, 1 since the start")));
  EXPECT_THAT(health_.AfterStep(NotFinite(), kTrend, ""),
              AllOf(HasSubstr("the loss is not finite"), HasSubstr("2 in a row, 2 since the start)")));
}

TEST_F(RunHealthTest, SaysHowFarASpikeLies) {
  StepResult spike;
  spike.gradient.loss = {.loss = 40, .nll = 40, .tokens = 10};
  EXPECT_THAT(health_.AfterStep(spike, kTrend, ""), HasSubstr("the loss 4 lies 4.0 deviations above the mean 2 "));
}

TEST_F(RunHealthTest, OnlyARowOfSkippedStepsSendsBack) {
  Skip(2);
  EXPECT_FALSE(health_.must_go_back());
  health_.AfterStep(Applied(), kTrend, "");
  Skip(2);
  EXPECT_FALSE(health_.must_go_back()) << "four, but not in a row";
  EXPECT_THAT(health_.AfterStep(NotFinite(), kTrend, ""), HasSubstr("3 in a row, 5 since the start"));
  EXPECT_TRUE(health_.must_go_back());
}

TEST_F(RunHealthTest, GoesBackWithTheWeightsAndOnWithTheData) {
  const TrainingProgress loaded{
      .step = 40, .update = 38, .samples_seen = 400, .best = {{.step = 30, .score = 3}}, .loss_trend = kTrend};
  const TrainingProgress now{.step = 63,
                             .update = 60,
                             .epochs_done = 2.5,
                             .place = {.epoch = 2, .read = 5},
                             .training_data = {.samples = 78, .crc32c = 9},
                             .samples_seen = 630,
                             .target_tokens_seen = 7,
                             .training_seconds = 9};
  Skip(3);
  const absl::StatusOr<TrainingProgress> progress = health_.GoBack(now, loaded);
  TrainingProgress expected = loaded;
  expected.step = 63;
  expected.epochs_done = 2.5;
  expected.place = now.place;
  expected.training_data = now.training_data;
  expected.samples_seen = 630;
  expected.target_tokens_seen = 7;
  expected.training_seconds = 9;
  EXPECT_EQ(*progress, expected);
  EXPECT_FALSE(health_.must_go_back()) << "a new row";
}

TEST_F(RunHealthTest, TheSameWeightsTwiceEndTheRun) {
  const TrainingProgress now{.step = 63}, loaded{.step = 40, .update = 38}, newer{.step = 50, .update = 47};
  Skip(3);
  ASSERT_TRUE(health_.GoBack(now, loaded).ok());
  Skip(3);
  ASSERT_TRUE(health_.GoBack(now, newer).ok()) << "a checkpoint was written in between";
  Skip(3);
  const absl::Status status = health_.GoBack(now, newer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("step 63: 3 steps in a row"), HasSubstr("weights of update 47")));
}

TEST_F(RunHealthTest, WithoutACheckpointTheRunEndsAndSaysWhereItFailed) {
  health_.AfterStep(NotFinite(), kTrend, "step 1 failed; somewhere");
  Skip(2);
  const absl::Status status = health_.GoBack({.step = 3}, std::nullopt).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("there is no checkpoint to go back to. step 1 failed; somewhere; try a"));
}

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

TEST(LearningRateTest, OfAnUpdateOfARun) {
  const RateOptions polynomial{
      .schedule = RateSchedule::kPolynomial, .peak = 1e-3, .warmup_updates = 10, .end_rate = 1e-5, .power = 2};
  struct Case {
    const char* name;
    RateOptions options;
    int64_t total;                                  // updates of the run, where they count
    std::vector<std::pair<int64_t, double>> rates;  // by update
  };
  for (const Case& c : {Case{"fairseq's inverse square root",
                             {.peak = 5e-4, .warmup_updates = 4000, .warmup_initial_rate = 1e-7},
                             0,
                             {{1, 1e-7}, {2001, 1e-7 + 2000 * (5e-4 - 1e-7) / 4000}, {4001, 5e-4}, {16001, 2.5e-4}}},
                        Case{"no warm-up", {.peak = 1e-3, .warmup_updates = 0}, 0, {{1, 1e-3}, {101, 1e-4}}},
                        Case{"no warm-up of a polynomial",
                             {.schedule = RateSchedule::kPolynomial, .peak = 1e-3, .warmup_updates = 0},
                             100,
                             {{1, 1e-3}}},
                        Case{"polynomial",
                             polynomial,
                             110,
                             {{6, 5e-4}, {11, 1e-3}, {61, (1e-3 - 1e-5) * 0.25 + 1e-5}, {111, 1e-5}, {500, 1e-5}}},
                        Case{"a run that ends in its warm-up", polynomial, 5, {{6, 5e-4}, {11, 1e-3}, {15, 1e-3}}},
                        Case{"or with it", polynomial, 10, {{6, 5e-4}, {11, 1e-3}, {15, 1e-3}}},
                        Case{"T-Fixup needs no warm-up",
                             {.schedule = RateSchedule::kTFixup, .peak = 5e-4, .warmup_updates = 100},
                             0,
                             {{1, 5e-4}, {12001, 2.5e-4}}}}) {
    for (const auto& [update, rate] : c.rates) {
      EXPECT_DOUBLE_EQ(LearningRate(c.options, update, c.total), rate) << c.name << ", update " << update;
    }
  }
}

// Expects the rates of updates 1, 2, … of 16, of which 4 warm up.
void ExpectRates(RateOptions options, const std::vector<double>& rates) {
  options.peak = 1e-3, options.warmup_updates = 4, options.end_rate = options.warmup_initial_rate = 1e-4;
  for (size_t k = 0; k < rates.size(); ++k) {
    EXPECT_NEAR(LearningRate(options, static_cast<int64_t>(k) + 1, 16) / rates[k], 1, 1e-12) << "update " << k + 1;
  }
  EXPECT_EQ(LearningRate(options, 1000, 0), 1e-3) << "of a run without an end";
}

// As printed by PyTorch 1.13's CosineAnnealingLR (T_max 12) behind the warm-up.
TEST(LearningRateTest, CosineIsPyTorchs) {
  ExpectRates({.schedule = RateSchedule::kCosine},
              {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 0.001, 0.0009846666218300806, 0.0009397114317029974,
               0.0008681980515339463, 0.000775, 0.0006664685702961343, 0.0005499999999999999, 0.00043353142970386566,
               0.0003250000000000001, 0.00023180194846605365, 0.00016028856829700258, 0.0001153333781699193, 0.0001});
  const RateOptions only_warm_up{.schedule = RateSchedule::kCosine, .peak = 1e-3, .warmup_updates = 20};
  EXPECT_EQ(LearningRate(only_warm_up, 30, 16), 1e-3);
}

// As printed by transformers 4.57.6's get_wsd_schedule (4 warm-up, 4 stable, 8 decay steps, min_lr_ratio 0.1).
TEST(LearningRateTest, WarmUpStableDecayIsTransformers) {
  ExpectRates({.schedule = RateSchedule::kWsd, .decay_updates = 8},
              {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 8.875e-4, 7.75e-4, 6.625e-4, 5.5e-4,
               4.375e-4, 3.25e-4, 2.125e-4, 1e-4});
  ExpectRates({.schedule = RateSchedule::kWsd, .decay_updates = 8, .decay_shape = DecayShape::kOneMinusSqrt},
              {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 0.0006818019484660537, 5.5e-4,
               0.000448864807873785, 0.00036360389693210714, 0.0002884875264621146, 0.00022057713659400527,
               0.00015812708797586323, 1e-4});
  ExpectRates(
      {.schedule = RateSchedule::kWsd, .decay_updates = 8, .decay_shape = DecayShape::kCosine},
      {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 0.000965745789630079, 0.0008681980515339464,
       0.0007222075445642904, 5.5e-4, 0.0003777924554357096, 0.00023180194846605365, 0.00013425421036992097, 1e-4});
}

TEST(LearningRateTest, AConstantRateStaysAfterItsWarmUp) {
  ExpectRates({.schedule = RateSchedule::kConstant}, {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 1e-3, 1e-3});
}

}  // namespace
}  // namespace hadal
