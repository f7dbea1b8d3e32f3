#include "pipeline/schedule/schedule_replay.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

Replay MustReplay(ScheduleKind kind, const ScheduleShape& shape, const ReplayCosts& costs, int outstanding_sends = 1) {
  const auto programs = MakeSchedules(kind, shape);
  auto replay = ReplaySchedule(*programs, shape, costs, {.outstanding_sends = outstanding_sends});
  EXPECT_TRUE(replay.ok()) << replay.status();
  return *std::move(replay);
}

TEST(ScheduleReplayTest, BubbleIsTheFormulasForEqualCosts) {
  int compared = 0;
  for (const ScheduleKind kind : AllScheduleKinds()) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int chunks = 1; chunks <= (RunsSeveralChunks(kind) ? 4 : 1); ++chunks) {
        for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
          const ScheduleShape shape{.stages = stages, .chunks = chunks, .micro_batches = micro_batches};
          const auto formula = AnalyticBubbleFraction(kind, shape);
          if (!formula) continue;
          ++compared;
          for (const double backward : {1.0, 2.0, 3.0}) {
            const Replay replay = MustReplay(kind, shape, EqualCosts(shape, 1.0, backward));
            EXPECT_NEAR(replay.BubbleFraction(), *formula, 1e-12)
                << ToString(kind) << ", S = " << stages << ", v = " << chunks << ", M = " << micro_batches;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 3 * 8 * 32);
}

TEST(ScheduleReplayTest, FormulaHasNoAnswerWhereItDoesNotHold) {
  EXPECT_DOUBLE_EQ(*AnalyticBubbleFraction(ScheduleKind::k1F1B, {.stages = 4, .micro_batches = 9}), 3.0 / 12.0);
  EXPECT_DOUBLE_EQ(
      *AnalyticBubbleFraction(ScheduleKind::kInterleaved1F1B, {.stages = 4, .chunks = 2, .micro_batches = 8}),
      3.0 / 19.0);
  EXPECT_FALSE(AnalyticBubbleFraction(ScheduleKind::kInterleaved1F1B, {.stages = 4, .chunks = 2, .micro_batches = 9}));
  EXPECT_FALSE(AnalyticBubbleFraction(ScheduleKind::k1F1B, {.stages = 4, .chunks = 2, .micro_batches = 8}));
}

TEST(ScheduleReplayTest, SlowestStagePacesTheStep) {
  const ScheduleShape shape{.stages = 3, .chunks = 1, .micro_batches = 10};
  ReplayCosts costs = EqualCosts(shape, 1, 2);
  costs.forward_seconds[1] = 2;
  costs.backward_seconds[1] = 4;
  const Replay replay = MustReplay(ScheduleKind::k1F1B, shape, costs);
  // The slow stage works without a gap from its first input to its last gradient; around it, one pass of stage 0 and,
  // once, one pass of stage 2 that it must wait for.
  EXPECT_DOUBLE_EQ(replay.busy_seconds[1], 60);
  EXPECT_DOUBLE_EQ(replay.busy_seconds[0], 30);
  EXPECT_GE(replay.makespan_seconds, 1 + 60 + 2);
  EXPECT_LE(replay.makespan_seconds, 1 + 60 + 2 + 3);
}

TEST(ScheduleReplayTest, TransfersDelayNeighboursButNotOneRank) {
  const ScheduleShape two{.stages = 2, .chunks = 1, .micro_batches = 1};
  ReplayCosts costs = EqualCosts(two, 1, 2);
  costs.links = {{.latency_seconds = 0.5}};
  EXPECT_DOUBLE_EQ(MustReplay(ScheduleKind::kGpipe, two, costs).makespan_seconds, 1 + 0.5 + 1 + 2 + 0.5 + 2);
  const ScheduleShape one{.stages = 1, .chunks = 2, .micro_batches = 1};
  EXPECT_DOUBLE_EQ(MustReplay(ScheduleKind::kGpipe, one, costs).makespan_seconds, 1 + 1 + 2 + 2);
}

TEST(ScheduleReplayTest, FullSendRingBlocksTheSender) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 3};
  const auto programs = MakeForwardSchedules(shape);
  const ReplayCosts costs{.forward_seconds = {1, 10}, .backward_seconds = {0, 0}};
  const auto end_of_last_forward = [&](int outstanding_sends) {
    const auto replay =
        ReplaySchedule(*programs, shape, costs, {.outstanding_sends = outstanding_sends, .forward_only = true});
    EXPECT_DOUBLE_EQ(replay->makespan_seconds, 31);
    return replay->spans[0].back().end_seconds;
  };
  EXPECT_DOUBLE_EQ(end_of_last_forward(2), 3);
  EXPECT_DOUBLE_EQ(end_of_last_forward(1), 3);  // send 1 waits for receive 0 at 1 s, which is past
  // Once the ring is full, the next send waits until the receiver has come to the message before it.
  const ScheduleShape longer{.stages = 2, .chunks = 1, .micro_batches = 4};
  const auto last = [&](int outstanding_sends) {
    const auto replay = ReplaySchedule(*MakeForwardSchedules(longer), longer, costs,
                                       {.outstanding_sends = outstanding_sends, .forward_only = true});
    return replay->spans[0].back().end_seconds;
  };
  EXPECT_DOUBLE_EQ(last(1), 12);  // send 2 waits for receive 1 at 11 s
  EXPECT_DOUBLE_EQ(last(2), 4);
}

// Items through a line of servers, stages and links in turn: the first passes all of them, each later one leaves the
// slowest server's time after the one before it.
TEST(ScheduleReplayTest, SlowLinkPacesAForwardPass) {
  for (const double link : {0.25, 1.0, 3.5}) {
    for (const int stages : {2, 5}) {
      const ScheduleShape shape{.stages = stages, .chunks = 1, .micro_batches = 9};
      ReplayCosts costs = EqualCosts(shape, 1, 0);
      costs.links.assign(stages - 1, {.held_seconds = link, .latency_seconds = 0.125});
      const auto replay = ReplaySchedule(*MakeForwardSchedules(shape), shape, costs,
                                         {.outstanding_sends = shape.micro_batches, .forward_only = true});
      EXPECT_DOUBLE_EQ(replay->makespan_seconds, stages + (stages - 1) * (link + 0.125) + 8 * std::max(1.0, link));
      EXPECT_DOUBLE_EQ(replay->link_busy_seconds[0], 9 * link);
      EXPECT_DOUBLE_EQ(replay->link_busy_seconds[1], 0);
    }
  }
}

TEST(ScheduleReplayTest, AFullRingCountsAsBlocked) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 3};
  const ReplayCosts costs{.forward_seconds = {1, 10}, .backward_seconds = {0, 0}};
  const auto replay =
      ReplaySchedule(*MakeForwardSchedules(shape), shape, costs, {.outstanding_sends = 1, .forward_only = true});
  // Message 1 may go at 2 s, for message 0 was received at 1 s; message 2 at 11 s instead of 3 s.
  EXPECT_DOUBLE_EQ(replay->blocked_seconds[0], 8);
  EXPECT_DOUBLE_EQ(replay->blocked_seconds[1], 0);
}

TEST(ScheduleReplayTest, SpansOfARankDoNotOverlap) {
  const ScheduleShape shape{.stages = 4, .chunks = 3, .micro_batches = 7};
  ReplayCosts costs = EqualCosts(shape, 1, 2);
  for (int g = 0; g < shape.global_chunks(); ++g) costs.forward_seconds[g] += 0.1 * g;
  const Replay replay = MustReplay(ScheduleKind::kInterleaved1F1B, shape, costs, 2);
  for (int rank = 0; rank < shape.stages; ++rank) {
    ASSERT_EQ(replay.spans[rank].size(), 2u * 3 * 7);
    for (size_t i = 1; i < replay.spans[rank].size(); ++i) {
      EXPECT_GE(replay.spans[rank][i].begin_seconds, replay.spans[rank][i - 1].end_seconds);
    }
    EXPECT_LE(replay.spans[rank].back().end_seconds, replay.makespan_seconds);
  }
}

TEST(ScheduleReplayTest, RefusesCostsThatDoNotFit) {
  const ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 1};
  const auto programs = MakeSchedules(ScheduleKind::kGpipe, shape);
  ReplayCosts costs = EqualCosts(shape, 1, 2);
  costs.backward_seconds.pop_back();
  EXPECT_THAT(std::string(ReplaySchedule(*programs, shape, costs, {}).status().message()),
              HasSubstr("needs 2 forward and backward costs"));
  costs = EqualCosts(shape, std::numeric_limits<double>::quiet_NaN(), 1);
  EXPECT_EQ(ReplaySchedule(*programs, shape, costs, {}).status().code(), absl::StatusCode::kInvalidArgument);
  costs = EqualCosts(shape, 1, 1);
  costs.links = {{}, {}};
  EXPECT_THAT(std::string(ReplaySchedule(*programs, shape, costs, {}).status().message()), HasSubstr("1 link costs"));
  for (const LinkCost& link : {LinkCost{.latency_seconds = -1}, LinkCost{.backward_held_seconds = -1}}) {
    costs.links = {link};
    EXPECT_EQ(ReplaySchedule(*programs, shape, costs, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
  costs = EqualCosts(shape, 1, 1);
  costs.gap_seconds = -1;
  EXPECT_THAT(std::string(ReplaySchedule(*programs, shape, costs, {}).status().message()), HasSubstr("a gap that is"));
  costs = EqualCosts(shape, 1, 1);
  costs.weight_seconds = {1, 1.5};
  EXPECT_THAT(std::string(ReplaySchedule(*programs, shape, costs, {}).status().message()),
              HasSubstr("at most its backward's"));
}

}  // namespace
}  // namespace hadal
