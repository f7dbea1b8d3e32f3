// Runs of a few steps made by hand (scaling_test.cc: the split of waiting by replay, over recorded runs).
#include "tools/report/run_summary.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

// A run without a readable config: nothing to replay.
RunRecord RunOf(std::vector<StepMetrics> steps) {
  RunRecord run;
  run.steps = std::move(steps);
  return run;
}

StepMetrics Step(double seconds, std::vector<StageTimes> stages = {}) {
  return {.target_tokens = 100, .step_seconds = seconds, .stages = std::move(stages)};
}

TEST(RunSummary, MeansAreOverSteadyStepsAlone) {
  StepMetrics skipped = Step(50);
  skipped.skipped = true;
  const RunSummary summary = Summarize(RunOf({Step(9), Step(2), skipped, Step(4)})).value();
  EXPECT_EQ(summary.steps, 2);
  EXPECT_DOUBLE_EQ(summary.step_seconds, 3);
  EXPECT_DOUBLE_EQ(summary.tokens_per_second(), 100 / 3.0);
  EXPECT_FALSE(summary.parts.has_value()) << "no stage times";
  EXPECT_EQ(summary.slowest_stage, -1);
}

TEST(RunSummary, AFirstStepOrASkippedOneCountsWhereThereIsNoOther) {
  EXPECT_DOUBLE_EQ(Summarize(RunOf({Step(9)})).value().step_seconds, 9);
  StepMetrics skipped = Step(5);
  skipped.skipped = true;
  const RunSummary summary = Summarize(RunOf({Step(9), skipped})).value();
  EXPECT_EQ(summary.steps, 1);
  EXPECT_DOUBLE_EQ(summary.step_seconds, 5);
}

// Stage times are recorded now and then; where there are some, only their steps can be taken apart.
TEST(RunSummary, StepsWithStageTimesAreTheOnesAveraged) {
  const std::vector<StageTimes> stages = {{.forward_seconds = 1, .backward_seconds = 2, .wait_seconds = 3},
                                          {.forward_seconds = 3, .backward_seconds = 2, .wait_seconds = 1}};
  const RunSummary summary = Summarize(RunOf({Step(9), Step(100), Step(7, stages)})).value();
  EXPECT_EQ(summary.steps, 1);
  ASSERT_TRUE(summary.parts.has_value());
  EXPECT_FALSE(summary.wait_is_split);
  EXPECT_DOUBLE_EQ(summary.parts->forward, 2);
  EXPECT_DOUBLE_EQ(summary.parts->backward, 2);
  EXPECT_DOUBLE_EQ(summary.parts->exposed_transfers, 2) << "all waiting: there is no schedule to replay";
  EXPECT_DOUBLE_EQ(summary.parts->other, 1);
  EXPECT_EQ(summary.slowest_stage, 1);
  EXPECT_DOUBLE_EQ(summary.slowest_excess, 0.25);  // 5 s of 4
}

// Surveyed at each of the first steps, which are slow, and at every tenth later.
TEST(RunSummary, TheBeginningWeighsNoMoreThanTheRest) {
  std::vector<StepMetrics> steps;
  for (int64_t step = 0; step < 60; ++step) {
    if (step >= 20 && step % 10 != 9) continue;
    steps.push_back(Step(step < 20 ? 9 : 3, {{.forward_seconds = 1}}));
    steps.back().step = step;
  }
  const RunSummary summary = Summarize(RunOf(std::move(steps))).value();
  EXPECT_EQ(summary.steps, 6) << "9, 19, 29 … 59";
  EXPECT_DOUBLE_EQ(summary.step_seconds, (2 * 9 + 4 * 3) / 6.0);
}

// 30 s went by between the ends of the first and the last step, 14 of them in steps.
TEST(RunSummary, WhatPassesBetweenStepsIsOutside) {
  std::vector<StepMetrics> steps = {Step(9), Step(6), Step(8)};
  steps[0].elapsed_seconds = 10;
  steps[2].elapsed_seconds = 40;
  EXPECT_DOUBLE_EQ(Summarize(RunOf(steps)).value().outside_seconds, 8);
  steps[2].elapsed_seconds = 20;  // less than its own steps took: clocks are not exact
  EXPECT_DOUBLE_EQ(Summarize(RunOf(steps)).value().outside_seconds, 0);
}

// Nobody waits for a core longer than it computes; what was measured may say so.
TEST(CompareWithCosts, AStageThatOnlyWaitedHadNoCore) {
  RunSummary summary =
      Summarize(RunOf({Step(9), Step(6, {{.forward_seconds = 2, .backward_seconds = 2, .core_wait_seconds = 5}})}))
          .value();
  CompareWithCosts({{.forward = 1, .backward = 2}}, summary);
  EXPECT_DOUBLE_EQ(summary.beyond_costs.at(0), -1);
}

// Costs say 1 + 2 s a stage; the first stage took 4 s, the second 5 s of which 2 without a core.
TEST(CompareWithCosts, WhatGoesBeyondTheCostsIsAPartAndTheSumStays) {
  const std::vector<StageTimes> stages = {{.forward_seconds = 2, .backward_seconds = 2},
                                          {.forward_seconds = 2, .backward_seconds = 3, .core_wait_seconds = 2}};
  RunSummary summary = Summarize(RunOf({Step(9), Step(6, stages)})).value();
  EXPECT_DOUBLE_EQ(summary.parts->core_wait, 1);
  EXPECT_DOUBLE_EQ(summary.parts->sum(), 6);
  CompareWithCosts({{.forward = 1, .backward = 2}, {.forward = 1, .backward = 2}}, summary);
  EXPECT_DOUBLE_EQ(summary.parts->forward, 1);
  EXPECT_DOUBLE_EQ(summary.parts->backward, 2);
  EXPECT_DOUBLE_EQ(summary.parts->slower, 0.5) << "3.5 s a stage with a core, 3 by the costs";
  EXPECT_DOUBLE_EQ(summary.parts->sum(), 6);
  ASSERT_EQ(summary.beyond_costs.size(), 2u);
  EXPECT_DOUBLE_EQ(summary.beyond_costs[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(summary.beyond_costs[1], 0);
}

}  // namespace
}  // namespace hadal
