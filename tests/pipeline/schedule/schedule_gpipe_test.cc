#include "gtest/gtest.h"
#include "pipeline/schedule/schedule_print.h"

namespace hadal {
namespace {

std::string Drawing(const ScheduleShape& shape) {
  const auto programs = MakeSchedules(ScheduleKind::kGpipe, shape);
  return programs.ok() ? DrawSchedule(*programs, shape, {}).value_or("") : programs.status().ToString();
}

TEST(ScheduleGpipeTest, AllForwardsComeBeforeAllBackwards) {
  EXPECT_EQ(Drawing({.stages = 2, .chunks = 1, .micro_batches = 3}),
            "rank 0  F0 F1 F2 .  .  .  B0 -- B1 -- B2 --\n"
            "rank 1  .  F0 F1 F2 B0 -- B1 -- B2 -- .  .\n"
            "12 units, 25.0% idle\n");
}

TEST(ScheduleGpipeTest, TwoChunksARank) {
  EXPECT_EQ(Drawing({.stages = 2, .chunks = 2, .micro_batches = 2}),
            "rank 0  F0a F1a F0b F1b .   .   .   B0b --  B1b --  B0a --  B1a --\n"
            "rank 1  .   F0a F1a F0b F1b B0b --  B1b --  B0a --  B1a --  .   .\n"
            "15 units, 20.0% idle\n");
}

}  // namespace
}  // namespace hadal
