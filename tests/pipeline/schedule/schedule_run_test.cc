#include "pipeline/schedule/schedule_run.h"

#include <map>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(ScheduleRunTest, VisitsEveryInstructionInAnOrderThatRespectsMessages) {
  const ScheduleShape shape{.stages = 3, .chunks = 2, .micro_batches = 5};
  const auto programs = MakeSchedules(ScheduleKind::kInterleaved1F1B, shape);
  for (const int outstanding_sends : {1, 2}) {
    std::vector<size_t> next(shape.stages, 0);
    std::map<int, int> unreceived;  // by channel
    const RunEnd end = RunSchedule(*programs, shape, outstanding_sends, [&](int rank, const Instruction& instruction) {
      EXPECT_EQ(instruction, (*programs)[rank][next[rank]++]);
      if (IsSend(instruction.operation)) {
        EXPECT_LE(++unreceived[ChannelOf(shape, rank, instruction).number], outstanding_sends);
      } else if (IsReceive(instruction.operation)) {
        EXPECT_GE(--unreceived[ChannelOf(shape, rank, instruction).number], 0);
      }
    });
    EXPECT_TRUE(end.finished);
    for (int rank = 0; rank < shape.stages; ++rank) EXPECT_EQ(next[rank], (*programs)[rank].size());
  }
}

TEST(ScheduleRunTest, StopsWhereNobodyCanMove) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 1};
  auto programs = *MakeForwardSchedules(shape);
  programs[0].pop_back();  // the send
  const RunEnd end = RunSchedule(programs, shape, 1, [](int, const Instruction&) {});
  EXPECT_FALSE(end.finished);
  EXPECT_EQ(end.position, (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace hadal
