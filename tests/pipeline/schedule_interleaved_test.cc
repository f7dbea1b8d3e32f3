#include "gtest/gtest.h"
#include "pipeline/schedule_print.h"
#include "pipeline/schedule_replay.h"

namespace hadal {
namespace {

TEST(ScheduleInterleavedTest, DrawsAsInThePaper) {
  const ScheduleShape shape{.stages = 2, .chunks = 2, .micro_batches = 2};
  EXPECT_EQ(DrawSchedule(*MakeSchedules(ScheduleKind::kInterleaved1F1B, shape), shape, {}).value(),
            "rank 0  F0a F1a F0b F1b .   .   B0b --  .   B1b --  B0a --  B1a --\n"
            "rank 1  .   F0a F1a F0b B0b --  F1b B1b --  B0a --  B1a --  .   .\n"
            "15 units, 20.0% idle\n");
}

TEST(ScheduleInterleavedTest, WarmUpShrinksByTwoARank) {
  const ScheduleShape shape{.stages = 4, .chunks = 2, .micro_batches = 8};
  const auto programs = MakeSchedules(ScheduleKind::kInterleaved1F1B, shape);
  EXPECT_EQ(SummarizeProgram((*programs)[0], shape),
            "F0-3a F0-3b F4-6a B0b F7a (B1b F4b)-(B3b F6b) B0a F7b B1-3a B4-7b B4-7a");
  EXPECT_EQ(SummarizeProgram((*programs)[3], shape),
            "F0-3a (F0b B0b)-(F3b B3b) (F4a B0a)-(F7a B3a) (F4b B4b)-(F7b B7b) B4-7a");
}

TEST(ScheduleInterleavedTest, OneChunkIs1F1B) {
  for (int micro_batches : {1, 3, 4, 9}) {
    const ScheduleShape shape{.stages = 4, .chunks = 1, .micro_batches = micro_batches};
    EXPECT_EQ(*MakeSchedules(ScheduleKind::kInterleaved1F1B, shape), *MakeSchedules(ScheduleKind::k1F1B, shape));
  }
}

// Micro-batches that fill no group must not make two chunks a rank slower than one.
TEST(ScheduleInterleavedTest, NeverSlowerThan1F1BOfTheSameDepth) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      const ScheduleShape whole{.stages = stages, .chunks = 1, .micro_batches = micro_batches};
      const double seconds =
          ReplaySchedule(*MakeSchedules(ScheduleKind::k1F1B, whole), whole, EqualCosts(whole, 12, 24), {})
              ->makespan_seconds;
      for (int chunks : {2, 3, 4}) {
        const ScheduleShape shape{.stages = stages, .chunks = chunks, .micro_batches = micro_batches};
        const auto replay = ReplaySchedule(*MakeSchedules(ScheduleKind::kInterleaved1F1B, shape), shape,
                                           EqualCosts(shape, 12.0 / chunks, 24.0 / chunks), {});
        EXPECT_LE(replay->makespan_seconds, seconds)
            << stages << " stages, " << chunks << " chunks, M = " << micro_batches;
      }
    }
  }
}

}  // namespace
}  // namespace hadal
