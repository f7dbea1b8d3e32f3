#include "pipeline/schedule/schedule_print.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

std::string Drawing(ScheduleKind kind, const ScheduleShape& shape, const SchedulePrintOptions& options) {
  const auto programs = MakeSchedules(kind, shape);
  EXPECT_TRUE(programs.ok()) << programs.status();
  const auto drawing = DrawSchedule(*programs, shape, options);
  return drawing.ok() ? *drawing : std::string(drawing.status().message());
}

TEST(SchedulePrintTest, ForwardOnly) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 3};
  EXPECT_EQ(DrawSchedule(*MakeForwardSchedules(shape), shape, {.forward_only = true}).value(),
            "rank 0  F0 F1 F2 .\n"
            "rank 1  .  F0 F1 F2\n"
            "4 units, 25.0% idle\n");
}

TEST(SchedulePrintTest, LongTimelinesKeepBothEnds) {
  EXPECT_EQ(Drawing(ScheduleKind::k1F1B, {.stages = 2, .chunks = 1, .micro_batches = 100},
                    {.backward_units = 1, .max_columns = 6}),
            "rank 0  F0  F1  .   … B98 .   B99\n"
            "rank 1  .   F0  B0  … F99 B99 .\n"
            "… 196 units of time left out\n"
            "202 units, 1.0% idle\n");
}

TEST(SchedulePrintTest, ManyRanksKeepBothEnds) {
  EXPECT_EQ(Drawing(ScheduleKind::kGpipe, {.stages = 12, .chunks = 1, .micro_batches = 1},
                    {.backward_units = 1, .max_columns = 4, .max_ranks = 3}),
            "rank  0  F0 .  … .  B0\n"
            "rank  1  .  F0 … B0 .\n"
            "… 9 ranks left out\n"
            "rank 11  .  .  … .  .\n"
            "… 20 units of time left out\n"
            "24 units, 91.7% idle\n");
}

TEST(SchedulePrintTest, ChunksHaveLettersThenNumbers) {
  const ScheduleShape shape{.stages = 1, .chunks = 27, .micro_batches = 1};
  EXPECT_EQ(DrawSchedule(*MakeForwardSchedules(shape), shape, {.forward_only = true, .max_columns = 4}).value(),
            "rank 0  F0a   F0b   … F0z   F0:26\n"
            "… 23 units of time left out\n"
            "27 units, 0.0% idle\n");
}

TEST(SchedulePrintTest, RefusesOptionsOutOfRange) {
  EXPECT_THAT(Drawing(ScheduleKind::kGpipe, {}, {.backward_units = 0}), HasSubstr("backward_units ≥ 1"));
  EXPECT_THAT(Drawing(ScheduleKind::kGpipe, {}, {.max_columns = 1}), HasSubstr("max_columns ≥ 2"));
}

}  // namespace
}  // namespace hadal
