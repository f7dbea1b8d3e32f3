#include "tools/plan/traced_costs.h"

#include <gtest/gtest.h>

#include <utility>

#include "pipeline/schedule/schedule_replay.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/output/trace_writer.h"
#include "tools/plan/simulate.h"

namespace hadal {
namespace {

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
      const auto programs = MakeSchedules(kind, shape);
      ASSERT_TRUE(programs.ok());
      const auto replay = ReplaySchedule(*programs, shape, costs, {.outstanding_sends = 2});
      ASSERT_TRUE(replay.ok());
      const std::string json = TraceToJson(TraceOf(shape, *replay, {shape.stages, replicas, placement}, 4));
      const auto traced =
          CostsFromTrace(json, {.schedule = kind, .shape = shape, .replicas = replicas, .placement = placement});
      ASSERT_TRUE(traced.ok()) << traced.status();
      ASSERT_EQ(traced->size(), 1u);
      const TracedCosts& step = traced->front();
      EXPECT_EQ(step.step, 4);
      EXPECT_EQ(step.micro_batches, 6);
      EXPECT_NEAR(step.span_seconds, replay->makespan_seconds, 1e-7);  // a trace has nanoseconds
      for (int g = 0; g < shape.global_chunks(); ++g) {
        EXPECT_NEAR(step.forward_seconds[g], costs.forward_seconds[g], 1e-8);
        EXPECT_NEAR(step.backward_seconds[g], costs.backward_seconds[g], 1e-8);
      }
      const auto again = Simulate({.kind = kind,
                                   .shape = shape,
                                   .outstanding_sends = 2,
                                   .forward_seconds = step.forward_seconds,
                                   .backward_seconds = step.backward_seconds});
      ASSERT_TRUE(again.ok());
      EXPECT_NEAR(again->result.replay.makespan_seconds, step.span_seconds, 1e-6);
    }
  }
}

TEST(TracedCosts, StepsThatAreNotWholeAreLeftOut) {
  const LayoutRecord layout{.shape = {2, 1, 3}};
  EXPECT_EQ(CostsFromTrace("{\"traceEvents\": []}", layout).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CostsFromTrace("no trace", layout).status().code(), absl::StatusCode::kDataLoss);
  const std::string one =
      R"({"traceEvents": [{"ph":"X","pid":0,"cat":"forward","ts":1,"dur":2,"args":{"step":0,"chunk":0}}]})";
  EXPECT_EQ(CostsFromTrace(one, layout).status().code(), absl::StatusCode::kNotFound);
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
