// Steps small enough to be replayed by hand.
#include "tools/plan/step_breakdown.h"

#include "gtest/gtest.h"
#include "pipeline/schedule/schedule_replay.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/output/run_record.h"
#include "tools/output/trace_writer.h"
#include "tools/plan/simulate.h"

namespace hadal {
namespace {

BrokenDownReplay BreakDown(ScheduleKind kind, const ScheduleShape& shape, const ReplayCosts& costs) {
  const std::vector<RankProgram> programs = MakeSchedules(kind, shape).value();
  return BreakDownStep(programs, shape, costs, {.outstanding_sends = 2}).value();
}

void ExpectParts(const StepBreakdown& parts, double compute, double bubble, double imbalance, double link,
                 double host) {
  EXPECT_DOUBLE_EQ(parts.compute_seconds, compute);
  EXPECT_DOUBLE_EQ(parts.bubble_seconds, bubble);
  EXPECT_DOUBLE_EQ(parts.imbalance_seconds, imbalance);
  EXPECT_DOUBLE_EQ(parts.link_seconds, link);
  EXPECT_DOUBLE_EQ(parts.host_seconds, host);
  EXPECT_DOUBLE_EQ(parts.makespan_seconds(), compute + bubble + imbalance + link + host);
}

constexpr ScheduleShape kTwoStages{.stages = 2, .chunks = 1, .micro_batches = 2};

// Two stages of 5 s a micro-batch: 10 s of computing, and (S - 1) micro-batches' worth of idling.
TEST(StepBreakdown, EqualStagesAndFreeLinksLeaveTheBubble) {
  const StepBreakdown parts =
      BreakDown(ScheduleKind::k1F1B, kTwoStages, {.forward_seconds = {2, 2}, .backward_seconds = {3, 3}}).breakdown;
  ExpectParts(parts, 10, 5, 0, 0, 0);
}

// The same work, unequally cut. Rank 0: F 0-1, F 1-2, B 8-10, B 15-17. Rank 1: F 1-4, B 4-8, F 8-11, B 11-15.
TEST(StepBreakdown, WhatUnequalStagesAddIsTheImbalance) {
  const BrokenDownReplay result =
      BreakDown(ScheduleKind::k1F1B, kTwoStages, {.forward_seconds = {1, 3}, .backward_seconds = {2, 4}});
  EXPECT_DOUBLE_EQ(result.replay.makespan_seconds, 17);
  ExpectParts(result.breakdown, 10, 5, 2, 0, 0);
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
  ExpectParts(parts, 5, 5, 0, 1.5, 0);
}

// The first launch, and one after each of two messages. The last stage's backward is launched during its forward.
TEST(StepBreakdown, GapsAreTheHosts) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 1};
  const BrokenDownReplay result = BreakDown(
      ScheduleKind::kGpipe, shape, {.forward_seconds = {1, 3}, .backward_seconds = {2, 4}, .gap_seconds = 0.5});
  EXPECT_DOUBLE_EQ(result.replay.makespan_seconds, 10 + 3 * 0.5);
  ExpectParts(result.breakdown, 5, 5, 0, 0, 3 * 0.5);
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

TEST(StepBreakdown, CostsOfAnotherShapeAreRefused) {
  const std::vector<RankProgram> programs = MakeSchedules(ScheduleKind::k1F1B, kTwoStages).value();
  const auto result =
      BreakDownStep(programs, kTwoStages, {.forward_seconds = {1}, .backward_seconds = {2}}, {.outstanding_sends = 2});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

// A replayed step, written down as a run of `replicas` would trace it, beginning at second 5.
RunTrace TraceOf(const ScheduleShape& shape, const Replay& replay, const GridShape& grid, int64_t step) {
  RunTrace trace{.first_step = step, .last_step = step};
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    RankTrace events;
    for (const ComputeSpan& span : replay.spans[grid.StageOf(rank)]) {
      const Operation operation = span.instruction.operation;
      // Another replica's work takes longer, and must not be read.
      const double factor = grid.ReplicaOf(rank) == 0 ? 1 : 3;
      events.events.push_back({.kind = operation == Operation::kForward          ? TraceKind::kForward
                                       : operation == Operation::kBackwardWeight ? TraceKind::kBackwardWeight
                                                                                 : TraceKind::kBackward,
                               .chunk = span.instruction.chunk,
                               .micro_batch = span.instruction.micro_batch,
                               .step = step,
                               .begin_seconds = 5 + factor * span.begin_seconds,
                               .end_seconds = 5 + factor * span.end_seconds});
    }
    trace.ranks.push_back(std::move(events));
  }
  return trace;
}

TEST(TracedCosts, AReplayOfTheTracedCostsTakesTheTracedTime) {
  for (const auto& [replicas, placement] :
       {std::pair(1, Placement::kReplicasTogether), std::pair(2, Placement::kReplicasTogether),
        std::pair(2, Placement::kStagesTogether)}) {
    for (const ScheduleKind kind : AllScheduleKinds()) {
      const ScheduleShape shape{3, RunsSeveralChunks(kind) ? 2 : 1, 6};
      ReplayCosts costs;
      for (int g = 0; g < shape.global_chunks(); ++g) {
        costs.forward_seconds.push_back(0.010 + 0.001 * g);
        costs.backward_seconds.push_back(0.025 - 0.001 * g);
      }
      const auto programs = MakeSchedules(kind, shape).value();
      const auto replay = ReplaySchedule(programs, shape, costs, {.outstanding_sends = 2}).value();
      const std::string json = TraceToJson(TraceOf(shape, replay, {shape.stages, replicas, placement}, 4));
      const auto traced =
          CostsFromTrace(json, {.schedule = kind, .shape = shape, .replicas = replicas, .placement = placement})
              .value();
      ASSERT_EQ(traced.size(), 1u);
      const TracedCosts& step = traced.front();
      EXPECT_EQ(step.step, 4);
      EXPECT_EQ(step.micro_batches, 6);
      EXPECT_NEAR(step.span_seconds, replay.makespan_seconds, 1e-7);  // a trace has nanoseconds
      for (int g = 0; g < shape.global_chunks(); ++g) {
        EXPECT_NEAR(step.forward_seconds[g], costs.forward_seconds[g], 1e-8);
        EXPECT_NEAR(step.backward_seconds[g], costs.backward_seconds[g], 1e-8);
      }
      const auto again = Simulate({.kind = kind,
                                   .shape = shape,
                                   .outstanding_sends = 2,
                                   .forward_seconds = step.forward_seconds,
                                   .backward_seconds = step.backward_seconds})
                             .value();
      EXPECT_NEAR(again.result.replay.makespan_seconds, step.span_seconds, 1e-6);
    }
  }
}

TEST(TracedCosts, StepsThatAreNotWholeAreLeftOut) {
  const LayoutRecord layout{.shape = {2, 1, 3}};
  EXPECT_EQ(CostsFromTrace("{\"traceEvents\":[\n]}\n", layout).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CostsFromTrace("no trace", layout).status().code(), absl::StatusCode::kDataLoss);
  const std::string one =
      "{\"traceEvents\":[\n"
      R"({"ph":"X","pid":0,"cat":"forward","ts":1,"dur":2,"args":{"step":0,"chunk":0}})";
  EXPECT_EQ(CostsFromTrace(one + "\n]}\n", layout).status().code(), absl::StatusCode::kNotFound);
  for (const std::string& wrong : {one.substr(0, one.size() - 1), one + ",\n{\"ph\":\"X\",\"cat\":\"forward\"}"}) {
    EXPECT_EQ(CostsFromTrace(wrong, layout).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
}

TEST(SimulateRun, ARunWithoutATraceIsRefused) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory.path(), {.stages = {{.forward_seconds = 1}}});
  const auto options = SimulateOptionsFromRun(directory.path());
  EXPECT_EQ(options.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(options.status().message().find("--trace"), std::string::npos);
}

}  // namespace
}  // namespace hadal
