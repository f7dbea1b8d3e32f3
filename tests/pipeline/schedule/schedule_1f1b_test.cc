#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pipeline/schedule/schedule_print.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using enum Operation;

TEST(Schedule1F1BTest, DrawsAsInThePaper) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 3};
  EXPECT_EQ(DrawSchedule(*MakeSchedules(ScheduleKind::k1F1B, shape), shape, {}).value(),
            "rank 0  F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
            "rank 1  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n"
            "12 units, 25.0% idle\n");
}

TEST(Schedule1F1BTest, EveryComputeStandsBetweenItsReceiveAndItsSend) {
  const ScheduleShape shape{.stages = 3, .chunks = 1, .micro_batches = 2};
  EXPECT_THAT(
      *MakeSchedule(ScheduleKind::k1F1B, shape, 1),
      ElementsAre(Instruction{kReceiveForward, 0, 0}, Instruction{kForward, 0, 0}, Instruction{kSendForward, 0, 0},
                  Instruction{kReceiveForward, 0, 1}, Instruction{kForward, 0, 1}, Instruction{kSendForward, 0, 1},
                  Instruction{kReceiveBackward, 0, 0}, Instruction{kBackward, 0, 0}, Instruction{kSendBackward, 0, 0},
                  Instruction{kReceiveBackward, 0, 1}, Instruction{kBackward, 0, 1}, Instruction{kSendBackward, 0, 1},
                  Instruction{kReduceTiedGradients}, Instruction{kReduceOverReplicas}, Instruction{kGlobalNorm},
                  Instruction{kOptimizerStep}, Instruction{kGatherOverReplicas}, Instruction{kDistributeTiedWeights}));
}

TEST(Schedule1F1BTest, FewerMicroBatchesThanStages) {
  const ScheduleShape shape{.stages = 4, .chunks = 1, .micro_batches = 2};
  EXPECT_EQ(DrawSchedule(*MakeSchedules(ScheduleKind::k1F1B, shape), shape, {}).value(),
            "rank 0  F0 F1 .  .  .  .  .  .  .  .  B0 -- .  B1 --\n"
            "rank 1  .  F0 F1 .  .  .  .  .  B0 -- .  B1 -- .  .\n"
            "rank 2  .  .  F0 F1 .  .  B0 -- .  B1 -- .  .  .  .\n"
            "rank 3  .  .  .  F0 B0 -- F1 B1 -- .  .  .  .  .  .\n"
            "15 units, 60.0% idle\n");
}

}  // namespace
}  // namespace hadal
