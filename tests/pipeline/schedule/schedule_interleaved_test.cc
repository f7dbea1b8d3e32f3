#include "gtest/gtest.h"
#include "pipeline/schedule/schedule_print.h"
#include "pipeline/schedule/schedule_replay.h"

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
  EXPECT_EQ(DrawSchedule(*MakeSchedules(ScheduleKind::kInterleaved1F1B, shape), shape, {.backward_units = 1}).value(),
            "rank 0  F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a B0b F7a B1b .   .   F4b B2b F5b B3b F6b "
            "B0a F7b B1a B2a B3a .   B4b .   B5b .   B6b .   B7b B4a B5a B6a B7a\n"
            "rank 1  .   F0a F1a F2a F3a F0b F1b F2b F3b F4a B0b F5a B1b F6a B2b F7a B3b F4b B0a F5b B1a "
            "F6b B2a F7b B3a .   B4b .   B5b .   B6b .   B7b B4a B5a B6a B7a .\n"
            "rank 2  .   .   F0a F1a F2a F3a F0b F1b F2b B0b F3b B1b F4a B2b F5a B3b F6a B0a F7a B1a F4b "
            "B2a F5b B3a F6b B4b F7b B5b .   B6b .   B7b B4a B5a B6a B7a .   .\n"
            "rank 3  .   .   .   F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b F4a B0a F5a B1a F6a B2a "
            "F7a B3a F4b B4b F5b B5b F6b B6b F7b B7b B4a B5a B6a B7a .   .   .\n"
            "38 units, 15.8% idle\n");
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
