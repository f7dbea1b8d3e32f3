// Steps small enough to be replayed by hand.
#include "tools/plan/step_breakdown.h"

#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

BrokenDownReplay BreakDown(ScheduleKind kind, const ScheduleShape& shape, const ReplayCosts& costs) {
  const std::vector<RankProgram> programs = MakeSchedules(kind, shape).value();
  return BreakDownStep(programs, shape, costs, {.outstanding_sends = 2}).value();
}

constexpr ScheduleShape kTwoStages{.stages = 2, .chunks = 1, .micro_batches = 2};

// Two stages of 5 s a micro-batch: 10 s of computing, and (S - 1) micro-batches' worth of idling.
TEST(StepBreakdown, EqualStagesAndFreeLinksLeaveTheBubble) {
  const StepBreakdown parts =
      BreakDown(ScheduleKind::k1F1B, kTwoStages, {.forward_seconds = {2, 2}, .backward_seconds = {3, 3}}).breakdown;
  EXPECT_DOUBLE_EQ(parts.compute_seconds, 10);
  EXPECT_DOUBLE_EQ(parts.bubble_seconds, 5);
  EXPECT_DOUBLE_EQ(parts.imbalance_seconds, 0);
  EXPECT_DOUBLE_EQ(parts.link_seconds, 0);
}

// The same work, unequally cut. Rank 0: F 0-1, F 1-2, B 8-10, B 15-17. Rank 1: F 1-4, B 4-8, F 8-11, B 11-15.
TEST(StepBreakdown, WhatUnequalStagesAddIsTheImbalance) {
  const BrokenDownReplay result =
      BreakDown(ScheduleKind::k1F1B, kTwoStages, {.forward_seconds = {1, 3}, .backward_seconds = {2, 4}});
  EXPECT_DOUBLE_EQ(result.replay.makespan_seconds, 17);
  EXPECT_DOUBLE_EQ(result.breakdown.compute_seconds, 10);
  EXPECT_DOUBLE_EQ(result.breakdown.bubble_seconds, 5);
  EXPECT_DOUBLE_EQ(result.breakdown.imbalance_seconds, 2);
  EXPECT_DOUBLE_EQ(result.breakdown.link_seconds, 0);
}

// One micro-batch through two stages and back: the border is crossed twice, each time 0.25 s on the link and 0.5 s
// behind it.
TEST(StepBreakdown, WhatALinkAddsIsTheLinks) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 1};
  const StepBreakdown parts = BreakDown(ScheduleKind::kGpipe, shape,
                                        {.forward_seconds = {1, 3},
                                         .backward_seconds = {2, 4},
                                         .links = {{.held_seconds = 0.25, .latency_seconds = 0.5}}})
                                  .breakdown;
  EXPECT_DOUBLE_EQ(parts.compute_seconds, 5);
  EXPECT_DOUBLE_EQ(parts.bubble_seconds, 5);
  EXPECT_DOUBLE_EQ(parts.imbalance_seconds, 0);
  EXPECT_DOUBLE_EQ(parts.link_seconds, 1.5);
  EXPECT_DOUBLE_EQ(parts.makespan_seconds(), 11.5);
}

// The first launch, and one after each of two messages. The last stage's backward is launched during its forward.
TEST(StepBreakdown, GapsAreTheHosts) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 1};
  const BrokenDownReplay result = BreakDown(
      ScheduleKind::kGpipe, shape, {.forward_seconds = {1, 3}, .backward_seconds = {2, 4}, .gap_seconds = 0.5});
  EXPECT_DOUBLE_EQ(result.replay.makespan_seconds, 10 + 3 * 0.5);
  EXPECT_DOUBLE_EQ(result.breakdown.compute_seconds, 5);
  EXPECT_DOUBLE_EQ(result.breakdown.host_seconds, 3 * 0.5);
  EXPECT_DOUBLE_EQ(result.breakdown.bubble_seconds, 5);
  EXPECT_DOUBLE_EQ(result.breakdown.makespan_seconds(), 11.5);
}

// Phases shorter than their launches: the host's time is the step's, but for the last phase.
TEST(StepBreakdown, AHostThatIsSlowerThanItsDeviceTakesAsLongAsItsLaunches) {
  const ScheduleShape shape{.stages = 1, .chunks = 1, .micro_batches = 3};
  const StepBreakdown parts =
      BreakDown(ScheduleKind::k1F1B, shape, {.forward_seconds = {1}, .backward_seconds = {2}, .gap_seconds = 4})
          .breakdown;
  EXPECT_DOUBLE_EQ(parts.makespan_seconds(), 6 * 4 + 2);
  EXPECT_DOUBLE_EQ(parts.host_seconds, 6 * 4 + 2 - 9);
}

TEST(StepBreakdown, OneStageOnlyComputes) {
  const ScheduleShape shape{.stages = 1, .chunks = 1, .micro_batches = 3};
  const StepBreakdown parts =
      BreakDown(ScheduleKind::k1F1B, shape, {.forward_seconds = {1}, .backward_seconds = {2}}).breakdown;
  EXPECT_DOUBLE_EQ(parts.compute_seconds, 9);
  EXPECT_DOUBLE_EQ(parts.makespan_seconds(), 9);
}

TEST(StepBreakdown, CostsOfAnotherShapeAreRefused) {
  const std::vector<RankProgram> programs = MakeSchedules(ScheduleKind::k1F1B, kTwoStages).value();
  const auto result =
      BreakDownStep(programs, kTwoStages, {.forward_seconds = {1}, .backward_seconds = {2}}, {.outstanding_sends = 2});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hadal
