#include "pipeline/step_report.h"

#include <gtest/gtest.h>

#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

TEST(StageSurvey, TimesAreTheMeanOverReplicasAndMemoryIsTheLargest) {
  for (const Placement placement : {Placement::kReplicasTogether, Placement::kStagesTogether}) {
    const GridShape grid = {.stages = 3, .replicas = 2, .placement = placement};
    InProcessWorld world(grid.ranks());
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      const int stage = grid.StageOf(communicator.rank()), replica = grid.ReplicaOf(communicator.rank());
      const StageTimes times = {.forward_seconds = 10.0 * stage + replica, .launches = 100.0 + stage + 2 * replica};
      const StageMemory memory = {.arena_bytes = 1000 + stage, .graph_bytes = 7 - replica};
      Collectives collectives(communicator, absl::Seconds(30));
      HADAL_ASSIGN_OR_RETURN(const StageSurvey survey, SurveyStages(grid, times, memory, collectives));
      EXPECT_EQ(survey.times.size(), 3u);
      EXPECT_EQ(survey.memory.size(), 3u);
      for (int s = 0; s < 3; ++s) {
        EXPECT_EQ(survey.times[s].forward_seconds, 10.0 * s + 0.5);
        EXPECT_EQ(survey.times[s].wait_seconds, 0);
        EXPECT_EQ(survey.times[s].launches, 101.0 + s);
        EXPECT_EQ(survey.memory[s].arena_bytes, 1000 + s);
        EXPECT_EQ(survey.memory[s].held_bytes, 0);
        EXPECT_EQ(survey.memory[s].graph_bytes, 7);
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace hadal
