#include "pipeline/run_health.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
  const ModelPlan plan_ = ModelPlan::Make({.encoder_layers = 1,
                                           .decoder_layers = 1,
                                           .d_model = 16,
                                           .d_ff = 32,
                                           .heads = 2,
                                           .source_vocabulary = 50,
                                           .target_vocabulary = 50,
                                           .max_positions = 8});
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
  const TrainingProgress loaded{.step = 40, .update = 38, .samples_seen = 400, .best_nll = 3, .loss_trend = kTrend};
  const TrainingProgress now{.step = 63,
                             .update = 60,
                             .epochs_done = 2.5,
                             .samples_seen = 630,
                             .target_tokens_seen = 7,
                             .training_seconds = 9};
  Skip(3);
  const absl::StatusOr<TrainingProgress> progress = health_.GoBack(now, loaded);
  ASSERT_TRUE(progress.ok()) << progress.status();
  TrainingProgress expected = loaded;
  expected.step = 63;
  expected.epochs_done = 2.5;
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

}  // namespace
}  // namespace hadal
