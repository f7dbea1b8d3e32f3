#include "pipeline/schedule/schedule_builder.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

std::string Order(const ScheduleShape& shape, ChunkVisit (*at)(const ScheduleShape&, int64_t)) {
  std::string text;
  for (int64_t i = 0; i < PaddedOrderSize(shape); ++i) {
    const ChunkVisit visit = at(shape, i);
    absl::StrAppend(&text, i == 0 ? "" : " ", visit.micro_batch, std::string(1, static_cast<char>('a' + visit.chunk)));
  }
  return text;
}

TEST(ScheduleBuilderTest, GroupsOfStagesPassChunkAfterChunk) {
  const ScheduleShape shape{.stages = 2, .chunks = 2, .micro_batches = 4};
  EXPECT_EQ(Order(shape, ForwardAt), "0a 1a 0b 1b 2a 3a 2b 3b");
  EXPECT_EQ(Order(shape, BackwardAt), "0b 1b 0a 1a 2b 3b 2a 3a");
}

TEST(ScheduleBuilderTest, OneChunkRunsStraightThrough) {
  EXPECT_EQ(Order({.stages = 3, .chunks = 1, .micro_batches = 3}, ForwardAt), "0a 1a 2a");
  EXPECT_EQ(Order({.stages = 3, .chunks = 1, .micro_batches = 3}, BackwardAt), "0a 1a 2a");
}

TEST(ScheduleBuilderTest, LeavesOutMicroBatchesBeyondTheLast) {
  const ScheduleShape shape{.stages = 2, .chunks = 2, .micro_batches = 3};
  EXPECT_EQ(PaddedOrderSize(shape), 8);
  ProgramBuilder builder(shape, 0);
  for (int64_t i = 0; i < PaddedOrderSize(shape); ++i) builder.Forward(ForwardAt(shape, i));
  int forwards = 0;
  for (const Instruction& instruction : std::move(builder).Finish()) {
    EXPECT_LT(instruction.micro_batch, 3);
    forwards += instruction.operation == Operation::kForward;
  }
  EXPECT_EQ(forwards, 6);
}

}  // namespace
}  // namespace hadal
