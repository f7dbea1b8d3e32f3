#include "pipeline/schedule/schedule.h"

#include <map>

#include "gmock/gmock.h"
#include "pipeline/schedule/schedule_print.h"
#include "pipeline/schedule/schedule_run.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using enum Operation;

TEST(ScheduleTest, KindsParseFromTheirNames) {
  for (const ScheduleKind kind : AllScheduleKinds()) {
    const auto parsed = ParseScheduleKind(ToString(kind));
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

std::string Drawing(ScheduleKind kind, const ScheduleShape& shape, const SchedulePrintOptions& options) {
  const auto programs = MakeSchedules(kind, shape);
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

// An input half takes a unit at least.
TEST(SchedulePrintTest, HalvesOfABackward) {
  EXPECT_EQ(Drawing(ScheduleKind::k1F1BSplit, {.stages = 2, .chunks = 1, .micro_batches = 2}, {.backward_units = 1}),
            "rank 0  F0 F1 .  B0 -- .  B1 --\n"
            "rank 1  .  F0 I0 W0 F1 I1 W1 .\n"
            "8 units, 25.0% idle\n");
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
  EXPECT_THAT(Drawing(ScheduleKind::kGpipe, {}, {.max_ranks = 1}), HasSubstr("max_ranks ≥ 2"));
}

}  // namespace
}  // namespace hadal
