#include "pipeline/schedule/schedule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum Operation;

TEST(ScheduleTest, KindsParseFromTheirNames) {
  for (const ScheduleKind kind : AllScheduleKinds()) {
    const auto parsed = ParseScheduleKind(ToString(kind));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, kind);
  }
  const auto unknown = ParseScheduleKind("2f2b");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("\"2f2b\"; use one of: gpipe, 1f1b, interleaved_1f1b"));
}

TEST(ScheduleTest, ChannelsJoinNeighbouringGlobalChunks) {
  const ScheduleShape shape{.stages = 3, .chunks = 2, .micro_batches = 4};
  EXPECT_EQ(NumberOfChannels(shape), 10);
  for (int g = 0; g + 1 < shape.global_chunks(); ++g) {
    const int above = shape.RankOf(g), below = shape.RankOf(g + 1);
    const Channel sent = ChannelOf(shape, above, {kSendForward, shape.ChunkOf(g), 0});
    const Channel received = ChannelOf(shape, below, {kReceiveForward, shape.ChunkOf(g + 1), 0});
    EXPECT_EQ(sent.number, 2 * g);
    EXPECT_EQ(received.number, 2 * g);
    EXPECT_EQ(sent.sender, above);
    EXPECT_EQ(sent.receiver, below);
    EXPECT_EQ(received.sender, above);
    EXPECT_EQ(received.receiver, below);
    const Channel gradient_sent = ChannelOf(shape, below, {kSendBackward, shape.ChunkOf(g + 1), 0});
    const Channel gradient_received = ChannelOf(shape, above, {kReceiveBackward, shape.ChunkOf(g), 0});
    EXPECT_EQ(gradient_sent.number, 2 * g + 1);
    EXPECT_EQ(gradient_received.number, 2 * g + 1);
    EXPECT_EQ(gradient_sent.sender, below);
    EXPECT_EQ(gradient_sent.receiver, above);
    EXPECT_EQ(gradient_received.sender, below);
    EXPECT_EQ(gradient_received.receiver, above);
  }
}

TEST(ScheduleTest, ForwardScheduleReceivesComputesAndSends) {
  const ScheduleShape shape{.stages = 3, .chunks = 1, .micro_batches = 2};
  EXPECT_THAT(*MakeForwardSchedule(shape, 0),
              ElementsAre(Instruction{kForward, 0, 0}, Instruction{kSendForward, 0, 0}, Instruction{kForward, 0, 1},
                          Instruction{kSendForward, 0, 1}));
  EXPECT_THAT(
      *MakeForwardSchedule(shape, 1),
      ElementsAre(Instruction{kReceiveForward, 0, 0}, Instruction{kForward, 0, 0}, Instruction{kSendForward, 0, 0},
                  Instruction{kReceiveForward, 0, 1}, Instruction{kForward, 0, 1}, Instruction{kSendForward, 0, 1}));
  EXPECT_THAT(*MakeForwardSchedule(shape, 2),
              ElementsAre(Instruction{kReceiveForward, 0, 0}, Instruction{kForward, 0, 0},
                          Instruction{kReceiveForward, 0, 1}, Instruction{kForward, 0, 1}));
}

TEST(ScheduleTest, OneStageNeedsNoMessages) {
  for (const ScheduleKind kind : AllScheduleKinds()) {
    const auto program = MakeSchedule(kind, {.stages = 1, .chunks = 1, .micro_batches = 1}, 0);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_THAT(*program,
                ElementsAre(Instruction{kForward}, Instruction{kBackward}, Instruction{kReduceTiedGradients},
                            Instruction{kReduceOverReplicas}, Instruction{kGlobalNorm}, Instruction{kOptimizerStep},
                            Instruction{kGatherOverReplicas}, Instruction{kDistributeTiedWeights}));
  }
}

TEST(ScheduleTest, RefusesShapesThatMakeNoSense) {
  const auto message = [](ScheduleKind kind, const ScheduleShape& shape, int rank) {
    const auto program = MakeSchedule(kind, shape, rank);
    EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(program.status().message());
  };
  EXPECT_THAT(message(ScheduleKind::kGpipe, {.stages = 0}, 0), HasSubstr("at least 1; got 0 stages"));
  EXPECT_THAT(message(ScheduleKind::kGpipe, {.chunks = -1}, 0), HasSubstr("-1 chunks"));
  EXPECT_THAT(message(ScheduleKind::kGpipe, {.micro_batches = 0}, 0), HasSubstr("0 micro-batches"));
  EXPECT_THAT(message(ScheduleKind::kGpipe, {.stages = 2}, 2), HasSubstr("rank 2 is outside the pipeline of 2 stages"));
  EXPECT_THAT(message(ScheduleKind::k1F1B, {.stages = 2, .chunks = 2}, 0),
              HasSubstr("use the schedule interleaved_1f1b"));
  EXPECT_THAT(message(ScheduleKind::kGpipe, {.chunks = 1 << 20, .micro_batches = 1 << 20}, 0), HasSubstr("too large"));
  EXPECT_FALSE(MakeSchedules(ScheduleKind::kGpipe, {.stages = -5}).ok());
}

}  // namespace
}  // namespace hadal
