#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "pipeline/schedule/schedule_check.h"
#include "pipeline/schedule/schedule_print.h"
#include "pipeline/schedule/schedule_replay.h"

namespace hadal {
namespace {

std::string Drawing(ScheduleKind kind, const ScheduleShape& shape, const SchedulePrintOptions& options = {}) {
  return DrawSchedule(*MakeSchedules(kind, shape), shape, options).value();
}

// The first as in the paper; of gpipe all forwards come before all backwards.
TEST(ScheduleOrdersTest, OfWholeBackwards) {
  EXPECT_EQ(Drawing(ScheduleKind::k1F1B, {.stages = 2, .chunks = 1, .micro_batches = 3}),
            "rank 0  F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
            "rank 1  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n"
            "12 units, 25.0% idle\n");
  EXPECT_EQ(Drawing(ScheduleKind::kGpipe, {.stages = 2, .chunks = 1, .micro_batches = 3}),
            "rank 0  F0 F1 F2 .  .  .  B0 -- B1 -- B2 --\n"
            "rank 1  .  F0 F1 F2 B0 -- B1 -- B2 -- .  .\n"
            "12 units, 25.0% idle\n");
  EXPECT_EQ(Drawing(ScheduleKind::kGpipe, {.stages = 2, .chunks = 2, .micro_batches = 2}),
            "rank 0  F0a F1a F0b F1b .   .   .   B0b --  B1b --  B0a --  B1a --\n"
            "rank 1  .   F0a F1a F0b F1b B0b --  B1b --  B0a --  B1a --  .   .\n"
            "15 units, 20.0% idle\n");
}

TEST(ScheduleInterleavedTest, WarmUpShrinksByTwoARank) {
  const ScheduleShape shape{.stages = 4, .chunks = 2, .micro_batches = 8};
  EXPECT_EQ(Drawing(ScheduleKind::kInterleaved1F1B, shape, {.backward_units = 1}),
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

// The weight half follows the send, or comes some micro-batches later; with free links only the way back is split; of
// several chunks a later rank keeps more back.
TEST(ScheduleOrdersTest, OfBackwardsInHalves) {
  ScheduleShape shape{.stages = 2, .chunks = 1, .micro_batches = 3};
  EXPECT_EQ(Drawing(ScheduleKind::k1F1BSplit, shape),
            "rank 0  F0 F1 .  B0 -- F2 B1 -- .  B2 --\n"
            "rank 1  .  F0 I0 W0 F1 I1 W1 F2 I2 W2 .\n"
            "11 units, 18.2% idle\n");
  EXPECT_EQ(Drawing(ScheduleKind::kZbH1, shape),
            "rank 0  F0 F1 .  B0 -- F2 B1 -- B2 --\n"
            "rank 1  .  F0 I0 F1 I1 W0 F2 I2 W1 W2\n"
            "10 units, 10.0% idle\n");
  shape.free_links = true;
  EXPECT_EQ(Drawing(ScheduleKind::k1F1BSplit, shape),
            "rank 0  F0 F1 .  .  B0 -- F2 B1 -- B2 --\n"
            "rank 1  .  F0 B0 -- F1 B1 -- F2 I2 W2 .\n"
            "11 units, 18.2% idle\n");
  EXPECT_EQ(Drawing(ScheduleKind::kInterleavedZb, {.stages = 3, .chunks = 2, .micro_batches = 3}),
            "rank 0  F0a F1a F2a F0b F1b F2b .   .   I0b W0b I1b W1b I2b W2b B0a --  B1a --  B2a --\n"
            "rank 1  .   F0a F1a F2a F0b F1b F2b I0b .   I1b W0b I2b W1b I0a W2b I1a W0a I2a W1a W2a\n"
            "rank 2  .   .   F0a F1a F2a F0b I0b F1b I1b F2b I2b I0a W0b I1a W1b I2a W2b W0a W1a W2a\n"
            "20 units, 10.0% idle\n");
}

// Per cent of the makespan; forward : input half : weight half of a stage.
struct IdleCase {
  double forward, input, weight;
  int stages, micro_batches;
  ScheduleKind kind;
  int chunks;
  double idle;
};

// As an independent list simulation has them, in which no send waits.
TEST(ScheduleZbTest, IdleSharesAreTheSimulated) {
  using enum ScheduleKind;
  const IdleCase cases[] = {
      {10, 11, 8, 8, 24, k1F1B, 1, 22.6},
      {10, 11, 8, 8, 24, k1F1BSplit, 1, 17.4},
      {10, 11, 8, 8, 24, kZbH1, 1, 11.6},
      {10, 11, 8, 8, 24, kInterleaved1F1B, 8, 3.5},
      {10, 11, 8, 8, 24, kInterleavedSplit, 8, 2.6},
      {10, 11, 8, 8, 24, kInterleavedZb, 8, 1.2},
      {10, 11, 8, 16, 16, k1F1B, 1, 48.4},
      {10, 11, 8, 16, 16, k1F1BSplit, 1, 40.4},
      {10, 11, 8, 16, 16, kZbH1, 1, 29.6},
      {10, 11, 8, 16, 16, kInterleaved1F1B, 8, 10.5},
      {10, 11, 8, 16, 16, kInterleavedSplit, 8, 7.8},
      {10, 11, 8, 16, 16, kInterleavedZb, 8, 5.0},
      {10, 21, 8, 8, 24, k1F1B, 1, 22.6},
      {10, 21, 8, 8, 24, k1F1BSplit, 1, 18.8},
      {10, 21, 8, 8, 24, kZbH1, 1, 14.7},
      {10, 21, 8, 8, 24, kInterleaved1F1B, 8, 3.5},
      {10, 21, 8, 8, 24, kInterleavedSplit, 8, 2.8},
      {10, 21, 8, 8, 24, kInterleavedZb, 8, 1.7},
  };
  for (const IdleCase& c : cases) {
    const ScheduleShape shape{.stages = c.stages, .chunks = c.chunks, .micro_batches = c.micro_batches};
    ReplayCosts costs = EqualCosts(shape, c.forward / c.chunks, (c.input + c.weight) / c.chunks);
    costs.weight_seconds.assign(shape.global_chunks(), c.weight / c.chunks);
    const auto replay = ReplaySchedule(*MakeSchedules(c.kind, shape), shape, costs, {.outstanding_sends = 8});
    EXPECT_NEAR(100 * replay->BubbleFraction(), c.idle, 0.3)
        << ToString(c.kind) << ", " << c.stages << " stages, input half " << c.input;
  }
}

// Splitting only helps, and no more is kept than schedule_orders.cc says.
// Also with free links, where they are as fast with fewer backwards in halves.
TEST(ScheduleZbTest, NeverSlowerThanWholeBackwardsWithinTheStatedMemory) {
  using enum ScheduleKind;
  const std::pair<ScheduleKind, ScheduleKind> pairs[] = {{k1F1B, k1F1BSplit},
                                                         {k1F1BSplit, kZbH1},
                                                         {kInterleaved1F1B, kInterleavedSplit},
                                                         {kInterleaved1F1B, kInterleavedZb}};
  for (const auto& [before, after] : pairs) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (const int chunks : {1, 2, 3, 8}) {
        if (chunks > 1 && !RunsSeveralChunks(after)) continue;
        for (int micro_batches = 1; micro_batches <= 32; micro_batches += micro_batches < 8 ? 1 : 3) {
          SCOPED_TRACE(absl::StrCat(ToString(after), ", S = ", stages, ", v = ", chunks, ", M = ", micro_batches));
          const ScheduleShape shape{.stages = stages, .chunks = chunks, .micro_batches = micro_batches};
          const auto programs = MakeSchedules(after, shape);
          const auto seconds = [&](const std::vector<RankProgram>& p) {
            return ReplaySchedule(p, shape, EqualCosts(shape, 10, 19), {.outstanding_sends = 2})->makespan_seconds;
          };
          EXPECT_LE(seconds(*programs), seconds(*MakeSchedules(before, shape)) * (1 + 1e-9));
          ScheduleShape free = shape;
          free.free_links = true;
          const auto with_free_links = MakeSchedules(after, free);
          EXPECT_LE(seconds(*with_free_links), seconds(*programs) * (1 + 1e-9));
          const auto report = CheckSchedule(*programs, shape, {}),
                     free_report = CheckSchedule(*with_free_links, free, {});
          // Of the first rank with whole backwards.
          const int warm_up = chunks == 1 ? stages - 1 : 2 * (stages - 1) + (chunks - 1) * stages;
          const int most_live = std::min(chunks * micro_batches, warm_up + 1);
          for (int rank = 0; rank < stages; ++rank) {
            const int most = WithOnePending(after) == after ? 1 : chunks > 1 ? 2 * chunks : rank + 1;
            EXPECT_LE(report->peak_pending[rank], most) << "rank " << rank;
            EXPECT_LE(report->peak_live_of_rank[rank], most_live) << "rank " << rank;
            EXPECT_EQ(free_report->peak_live_of_rank[rank], report->peak_live_of_rank[rank]) << "rank " << rank;
          }
        }
      }
    }
  }
}

}  // namespace

}  // namespace hadal
