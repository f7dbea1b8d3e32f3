// Runs of a few steps made by hand (scaling_test.cc: more of the split of waiting by replay, over recorded runs).
#include "tools/report/run_summary.h"

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

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

// Stages of different layouts have no mean; costs of the last one are not compared with another's times.
TEST(RunSummary, TheLastLayoutAloneIsTakenApart) {
  const std::vector<StageTimes> four(4, {.forward_seconds = 1}), two(2, {.forward_seconds = 2});
  RunRecord run = RunOf({Step(9, four), Step(3, four), Step(8, two), Step(5, two)});
  run.layout_begins = 2;
  RunSummary summary = Summarize(run).value();
  EXPECT_DOUBLE_EQ(summary.step_seconds, 5);
  EXPECT_EQ(summary.stages.size(), 2u);
  run.layout_begins = 4;  // no step yet
  summary = Summarize(run).value();
  EXPECT_TRUE(summary.stages.empty());
  EXPECT_FALSE(summary.parts.has_value());
  CompareWithCosts(std::vector<ComputeCosts>(2), summary);
  run.layout_begins = 0;
  summary = Summarize(RunOf({Step(9, four), Step(3, four)})).value();
  CompareWithCosts(std::vector<ComputeCosts>(2), summary);
  EXPECT_TRUE(summary.beyond_costs.empty());
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
  EXPECT_DOUBLE_EQ(summary.parts->unexplained, 1);
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
  steps[1].elapsed_seconds = 14;
  steps[2].elapsed_seconds = 40;
  EXPECT_DOUBLE_EQ(Summarize(RunOf(steps)).value().outside_seconds, 8);
  RunRecord resumed = RunOf(steps);
  resumed.starts = {0, 2};  // the clock of the last step is another start's
  EXPECT_DOUBLE_EQ(Summarize(resumed).value().outside_seconds, 0);
  steps[2].elapsed_seconds = 20;  // less than its own steps took: clocks are not exact
  EXPECT_DOUBLE_EQ(Summarize(RunOf(steps)).value().outside_seconds, 0);
}

// A step of two stages in 8 micro-batches: 1F1B, 0.6 s forward and 1.0 s backward a stage where they are equal.
TimeParts PartsOfTwo(std::vector<StageTimes> stages, double seconds) {
  RunRecord run = RunOf({Step(9), Step(seconds, std::move(stages))});
  run.layout = LayoutRecord{.shape = {.stages = 2, .micro_batches = 8}};
  const RunSummary summary = Summarize(run).value();
  EXPECT_TRUE(summary.wait_is_split);
  EXPECT_NEAR(summary.parts->sum(), seconds, 1e-12);
  return *summary.parts;
}

// As the engine's clocks have it: the last stage waits for the first forward, and in the step's tail for the first
// stage's last backward.
TEST(RunSummary, WaitingInTheTailIsWaitingToo) {
  constexpr double kForward = 0.6 / 8, kBackward = 1.0 / 8, kNorm = 0.01;
  const TimeParts parts = PartsOfTwo({{.forward_seconds = 0.6,
                                       .backward_seconds = 1.0,
                                       .wait_seconds = kForward + kBackward,
                                       .communication_seconds = kNorm},
                                      {.forward_seconds = 0.6,
                                       .backward_seconds = 1.0,
                                       .wait_seconds = kForward,
                                       .communication_seconds = kNorm + kBackward}},
                                     1.6 + kForward + kBackward + kNorm);
  EXPECT_NEAR(parts.bubble, kForward + kBackward, 1e-9);
  EXPECT_NEAR(parts.imbalance, 0, 1e-9);
  EXPECT_NEAR(parts.exposed_transfers, 0, 1e-9);
  EXPECT_NEAR(parts.communication, kNorm, 1e-9);
  EXPECT_NEAR(parts.unexplained, 0, 1e-9);
}

// The replay has each rank idle for 0.4 s on the average, the ranks waited 0.3 s.
TEST(RunSummary, NoTransferTakesLessThanNoTime) {
  const auto parts_of = [](double wait) {
    return PartsOfTwo({{.forward_seconds = 0.72, .backward_seconds = 1.2, .wait_seconds = wait},
                       {.forward_seconds = 0.48, .backward_seconds = 0.8, .wait_seconds = wait}},
                      3);
  };
  const TimeParts enough = parts_of(0.75), less = parts_of(0.3);
  EXPECT_NEAR(enough.bubble, 0.2, 1e-9);
  EXPECT_NEAR(enough.imbalance, 0.2, 1e-9);
  EXPECT_NEAR(enough.exposed_transfers, 0.35, 1e-9);
  EXPECT_EQ(less.exposed_transfers, 0);
  EXPECT_NEAR(less.bubble + less.imbalance, 0.3, 1e-12);
  EXPECT_NEAR(less.bubble / less.imbalance, 1, 1e-9);
}

// Two stages of which the second takes a quarter longer than the first.
RunSummary SummaryOfSlow(StageTimes slow, double imbalance) {
  RunSummary summary =
      Summarize(RunOf({Step(9), Step(6, {{.forward_seconds = 1, .backward_seconds = 2}, slow})})).value();
  summary.parts->imbalance = imbalance;
  return summary;
}

TEST(DescribeSlowStage, NamesItWithWhatIsKnownOfTheReason) {
  StageTimes slow{.forward_seconds = 1.25, .backward_seconds = 2.5};
  RunSummary summary = SummaryOfSlow(slow, 0.3);
  EXPECT_EQ(
      DescribeSlowStage(summary),
      "stage 1 computes 11% longer than the mean, and the others wait for it; its device is slower, or it has more "
      "to compute: replace it, or let the partition follow measured costs (pipeline.split)");
  summary.beyond_costs = {0.01, 0.26};
  EXPECT_THAT(DescribeSlowStage(summary), HasSubstr("its device is slower than profiled"));
  slow.core_wait_seconds = 0.7;
  EXPECT_THAT(DescribeSlowStage(SummaryOfSlow(slow, 0.3)), HasSubstr("other processes use its cores"));
}

TEST(DescribeSlowStage, ThereIsNoneWhereNobodyWaitsOrAllAreAlike) {
  const StageTimes slow{.forward_seconds = 1.25, .backward_seconds = 2.5};
  EXPECT_EQ(DescribeSlowStage(SummaryOfSlow(slow, 0.05)), "") << "of 6 s";
  EXPECT_EQ(DescribeSlowStage(SummaryOfSlow({.forward_seconds = 1.05, .backward_seconds = 2.2}, 0.3)), "");
  EXPECT_EQ(DescribeSlowStage(Summarize(RunOf({Step(9), Step(6, {slow})})).value()), "") << "one stage";
  EXPECT_EQ(DescribeSlowStage(Summarize(RunOf({Step(9), Step(6)})).value()), "") << "no stage times";
}

// Rank 0 takes 2 s; rank 1 has begun 3 s earlier, and has waited for it.
TEST(RunSummary, WaitingForARankThatHasNotBegunIsNotOfTheStep) {
  const auto parts_of = [](const StageTimes& second) {
    return *Summarize(RunOf({Step(9), Step(2, {{.forward_seconds = 2}, second})})).value().parts;
  };
  const TimeParts waits = parts_of({.forward_seconds = 1, .wait_seconds = 4});
  EXPECT_DOUBLE_EQ(waits.exposed_transfers, 0.5) << "1 s of rank 1";
  EXPECT_DOUBLE_EQ(waits.unexplained, 0);
  const TimeParts reduces = parts_of({.forward_seconds = 1, .wait_seconds = 0.5, .communication_seconds = 3.5});
  EXPECT_DOUBLE_EQ(reduces.exposed_transfers, 0);
  EXPECT_DOUBLE_EQ(reduces.communication, 0.5);
  EXPECT_DOUBLE_EQ(reduces.sum(), 2);
}

// Nobody waits for a core longer than it computes; what was measured may say so.
TEST(CompareWithCosts, AStageThatOnlyWaitedHadNoCore) {
  RunSummary summary =
      Summarize(RunOf({Step(9), Step(6, {{.forward_seconds = 2, .backward_seconds = 2, .core_wait_seconds = 5}})}))
          .value();
  CompareWithCosts({{.forward = 1, .backward = 2}}, summary);
  EXPECT_DOUBLE_EQ(summary.beyond_costs.at(0), -1);
}

// Costs say 3 s a stage; the first stage took 4 s, the second 5 s of which 2 without a core.
TEST(CompareWithCosts, WhatGoesBeyondTheCostsIsAPartAndTheSumStays) {
  const std::vector<StageTimes> stages = {{.forward_seconds = 2, .backward_seconds = 2},
                                          {.forward_seconds = 2, .backward_seconds = 3, .core_wait_seconds = 2}};
  RunSummary summary = Summarize(RunOf({Step(9), Step(6, stages)})).value();
  EXPECT_DOUBLE_EQ(summary.parts->core_wait, 1);
  EXPECT_DOUBLE_EQ(summary.parts->sum(), 6);
  CompareWithCosts(
      {{.forward = 1, .recompute = 0.25, .backward = 1.75}, {.forward = 1, .recompute = 0.75, .backward = 1.25}},
      summary);
  EXPECT_DOUBLE_EQ(summary.parts->forward, 1);
  EXPECT_DOUBLE_EQ(summary.parts->recompute, 0.5);
  EXPECT_DOUBLE_EQ(summary.parts->backward, 1.5);
  EXPECT_DOUBLE_EQ(summary.parts->slower, 0.5) << "3.5 s a stage with a core, 3 by the costs";
  EXPECT_DOUBLE_EQ(summary.parts->sum(), 6);
  ASSERT_EQ(summary.beyond_costs.size(), 2u);
  EXPECT_DOUBLE_EQ(summary.beyond_costs[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(summary.beyond_costs[1], 0);
}

}  // namespace
}  // namespace hadal
