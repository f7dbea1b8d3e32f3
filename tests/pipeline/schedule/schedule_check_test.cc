#include "pipeline/schedule/schedule_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "pipeline/schedule/schedule_orders.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using enum Operation;

// The most pairs that are live on a rank, by the formulas in schedule_orders.cc: exact if there is one chunk or S
// divides M, else an upper bound.
int64_t PeakLive(ScheduleKind kind, const ScheduleShape& shape, int rank) {
  const int64_t all = int64_t{shape.chunks} * shape.micro_batches;
  if (kind == ScheduleKind::kGpipe) return all;
  const int64_t lag = kind == ScheduleKind::kZbH1            ? HalvesOfZbH1(shape, rank)->lag
                      : kind == ScheduleKind::kInterleavedZb ? HalvesOfInterleavedZb(shape, rank)->lag
                                                             : 0;
  const int64_t first = shape.stages - 1 - rank, chunks = shape.chunks;
  return std::min(all, (chunks == 1 ? first : 2 * first + (chunks - 1) * shape.stages) + 1 + lag);
}

void ExpectSound(ScheduleKind kind, const ScheduleShape& shape) {
  SCOPED_TRACE(
      absl::StrCat(ToString(kind), ", S = ", shape.stages, ", v = ", shape.chunks, ", M = ", shape.micro_batches));
  const auto programs = MakeSchedules(kind, shape);
  ASSERT_TRUE(programs.ok()) << programs.status();
  for (int outstanding_sends : {1, 2, 4}) {
    const auto report = CheckSchedule(*programs, shape, {.outstanding_sends = outstanding_sends});
    ASSERT_TRUE(report.ok()) << report.status();
    for (int rank = 0; rank < shape.stages; ++rank) {
      const int64_t formula = PeakLive(kind, shape, rank);
      if (shape.chunks == 1 || kind == ScheduleKind::kGpipe || shape.micro_batches % shape.stages == 0) {
        EXPECT_EQ(report->peak_live_of_rank[rank], formula) << "rank " << rank;
      } else {
        EXPECT_LE(report->peak_live_of_rank[rank], formula) << "rank " << rank;
      }
      for (const int peak : report->peak_live[rank]) EXPECT_LE(peak, report->peak_live_of_rank[rank]);
    }
  }
  const auto forward = MakeForwardSchedules(shape);
  const auto report = CheckSchedule(*forward, shape, {.forward_only = true});
  for (const int peak : report->peak_live_of_rank) EXPECT_EQ(peak, 1);
}

TEST(ScheduleCheckTest, EveryScheduleIsSoundForEveryShape) {
  for (const ScheduleKind kind : AllScheduleKinds()) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (const int chunks : RunsSeveralChunks(kind) ? std::vector{1, 2, 3, 4, 8} : std::vector{1}) {
        for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
          ExpectSound(kind, {.stages = stages, .chunks = chunks, .micro_batches = micro_batches});
        }
      }
    }
  }
}

TEST(ScheduleCheckTest, LargeShapesAreSoundAndQuick) {
  ExpectSound(ScheduleKind::k1F1B, {.stages = 512, .chunks = 1, .micro_batches = 64});
  ExpectSound(ScheduleKind::kInterleaved1F1B, {.stages = 512, .chunks = 4, .micro_batches = 64});
  ExpectSound(ScheduleKind::kInterleaved1F1B, {.stages = 61, .chunks = 5, .micro_batches = 97});
  ExpectSound(ScheduleKind::kGpipe, {.stages = 61, .chunks = 5, .micro_batches = 97});
  ExpectSound(ScheduleKind::kZbH1, {.stages = 512, .chunks = 1, .micro_batches = 64});
  ExpectSound(ScheduleKind::kInterleavedZb, {.stages = 64, .chunks = 4, .micro_batches = 512});
}

// What the checker says to programs made bad by hand.
class BadScheduleTest : public ::testing::Test {
 protected:
  std::string Refusal(absl::StatusCode code, const ScheduleCheckOptions& options = {}) const {
    const auto report = CheckSchedule(programs_, shape_, options);
    EXPECT_EQ(report.status().code(), code) << report.status();
    return std::string(report.status().message());
  }
  // Position of an instruction in a rank's program.
  int Find(int rank, const Instruction& instruction) const {
    const auto at = std::find(programs_[rank].begin(), programs_[rank].end(), instruction);
    EXPECT_NE(at, programs_[rank].end()) << ToString(instruction);
    return static_cast<int>(at - programs_[rank].begin());
  }
  void Remove(int rank, const Instruction& instruction) {
    programs_[rank].erase(programs_[rank].begin() + Find(rank, instruction));
  }
  void Swap(int rank, const Instruction& a, const Instruction& b) {
    std::swap(programs_[rank][Find(rank, a)], programs_[rank][Find(rank, b)]);
  }

  ScheduleShape shape_{.stages = 2, .chunks = 1, .micro_batches = 4};
  std::vector<RankProgram> programs_ = *MakeSchedules(ScheduleKind::k1F1B, shape_);
};

TEST_F(BadScheduleTest, NamesTheCycleOfADeadlock) {
  shape_ = {.stages = 2, .chunks = 1, .micro_batches = 2};
  programs_ = *MakeSchedules(ScheduleKind::kGpipe, shape_);
  // Rank 0 wants the first gradient before it runs micro-batch 1; rank 1 sends no gradient before it has seen
  // micro-batch 1.
  RankProgram& first = programs_[0];
  std::rotate(first.begin() + Find(0, {kForward, 0, 1}), first.begin() + Find(0, {kReceiveBackward, 0, 0}),
              first.begin() + Find(0, {kReceiveBackward, 0, 1}));
  EXPECT_EQ(Refusal(absl::StatusCode::kFailedPrecondition),
            "deadlock with 1 outstanding send(s) a channel: rank 0 waits at instruction 2, receive_backward(chunk 0, "
            "micro-batch 0), for rank 1 to send micro-batch 0; rank 1 waits at instruction 2, receive_forward(chunk 0, "
            "micro-batch 1), for rank 0 to send micro-batch 1");
}

TEST_F(BadScheduleTest, WhatIsMissingDoubleOutOfPlaceOrOutOfRangeIsNamed) {
  const std::vector<RankProgram> good = programs_;
  const auto expect = [&](const auto& spoil, const auto& says) {
    programs_ = good;
    spoil();
    EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), says);
  };
  expect([&] { Remove(0, {kBackward, 0, 3}); }, Eq("rank 0 never runs backward(chunk 0, micro-batch 3)"));
  expect([&] { Remove(0, {kSendForward, 0, 3}); }, Eq("rank 0 never runs send_forward(chunk 0, micro-batch 3)"));
  expect(
      [&] {
        Remove(1, {kReceiveForward, 0, 1});
      },
      AllOf(HasSubstr("rank 1, instruction"), HasSubstr("forward(chunk 0, micro-batch 1): comes before "
                                                        "receive_forward(chunk 0, micro-batch 1)")));
  const Instruction backward{kBackward, 0, 0};
  expect([&] { programs_[1].insert(programs_[1].begin() + Find(1, backward), backward); },
         HasSubstr("backward(chunk 0, micro-batch 0): has run before, or out of order; micro-batch 1 is next"));
  expect(
      [&] {
        Swap(0, {kReceiveBackward, 0, 0}, backward);
      },
      HasSubstr("backward(chunk 0, micro-batch 0): comes before receive_backward(chunk 0, micro-batch 0)"));
  expect(
      [&] {
        Swap(0, {kForward, 0, 0}, {kSendForward, 0, 0});
      },
      HasSubstr("send_forward(chunk 0, micro-batch 0): comes before forward(chunk 0, micro-batch 0)"));
  expect([&] { Swap(1, {kForward, 0, 0}, backward); }, HasSubstr("comes before forward(chunk 0, micro-batch 0)"));
  expect(
      [&] {
        Swap(0, {kSendForward, 0, 0}, {kForward, 0, 1});
      },
      HasSubstr("overwrites an output that is not sent: send_forward(chunk 0, micro-batch 0) must come first"));
  expect(
      [&] {
        programs_[0].insert(programs_[0].begin(), Instruction{kReceiveForward, 0, 0});
      },
      HasSubstr("global chunk 0 of 2 has no neighbour on that side"));
  expect([&] { programs_[0][0].micro_batch = 4; }, HasSubstr("there are 4 micro-batches"));
  expect([&] { programs_[0][0] = {kForward, 1, 0}; }, HasSubstr("there are 1 chunks a rank"));
}

TEST_F(BadScheduleTest, AProgramWithoutBackwardHasNoTail) {
  programs_ = *MakeForwardSchedules(shape_);
  programs_[0].push_back({.operation = kReduceTiedGradients});
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument, {.forward_only = true}), HasSubstr("has no tail"));
}

TEST_F(BadScheduleTest, CycleLeavesOutRanksThatOnlyWaitForIt) {
  shape_ = {.stages = 4, .chunks = 1, .micro_batches = 2};
  programs_ = *MakeSchedules(ScheduleKind::kGpipe, shape_);
  RankProgram& first = programs_[2];
  std::rotate(first.begin() + Find(2, {kReceiveForward, 0, 1}), first.begin() + Find(2, {kReceiveBackward, 0, 0}),
              first.begin() + Find(2, {kReceiveBackward, 0, 1}));
  const std::string message = Refusal(absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(message, AllOf(HasSubstr("rank 2 waits"), HasSubstr("rank 3 waits"), Not(HasSubstr("rank 0 waits")),
                             Not(HasSubstr("rank 1 waits"))));
}

TEST_F(BadScheduleTest, OneOutstandingSendIsADeadlockWhereTwoAreNot) {
  shape_ = {.stages = 1, .chunks = 2, .micro_batches = 2};
  programs_ = {{{kForward, 0, 0},
                {kSendForward, 0, 0},
                {kForward, 0, 1},
                {kSendForward, 0, 1},
                {kReceiveForward, 1, 0},
                {kForward, 1, 0},
                {kReceiveForward, 1, 1},
                {kForward, 1, 1}}};
  EXPECT_EQ(Refusal(absl::StatusCode::kFailedPrecondition, {.outstanding_sends = 1, .forward_only = true}),
            "deadlock with 1 outstanding send(s) a channel: rank 0 waits at instruction 3, send_forward(chunk 0, "
            "micro-batch 1), for rank 0 to receive micro-batch 0");
  EXPECT_TRUE(CheckSchedule(programs_, shape_, {.outstanding_sends = 2, .forward_only = true}).ok());
}

TEST_F(BadScheduleTest, BackwardOutOfOrder) {
  programs_ = *MakeSchedules(ScheduleKind::kGpipe, shape_);
  for (const Operation operation : {kReceiveBackward, kBackward}) Swap(0, {operation, 0, 1}, {operation, 0, 2});
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument),
              HasSubstr("receive_backward(chunk 0, micro-batch 2): out of ascending order; micro-batch 1 is next"));
}

TEST_F(BadScheduleTest, ReceivesMoreThanTheRingHolds) {
  programs_ = *MakeSchedules(ScheduleKind::kGpipe, shape_);
  Swap(1, {kForward, 0, 0}, {kReceiveForward, 0, 1});
  EXPECT_THAT(Refusal(absl::StatusCode::kResourceExhausted),
              HasSubstr("1 received input(s) are not used yet and the channel's receive ring has 1"));
  EXPECT_TRUE(CheckSchedule(programs_, shape_, {.outstanding_sends = 2}).ok());
}

// A backward in two halves.
class BadHalvesTest : public BadScheduleTest {
 protected:
  BadHalvesTest() {
    shape_ = {.stages = 2, .chunks = 2, .micro_batches = 2};
    programs_ = *MakeSchedules(ScheduleKind::kInterleavedSplit, shape_);
  }
};

TEST_F(BadHalvesTest, AWeightHalfBeforeItsInputHalf) {
  Swap(1, {kBackwardInput, 1, 0}, {kBackwardWeight, 1, 0});
  EXPECT_THAT(
      Refusal(absl::StatusCode::kInvalidArgument),
      HasSubstr("backward_weight(chunk 1, micro-batch 0): comes before backward_input(chunk 1, micro-batch 0)"));
}

TEST_F(BadHalvesTest, WeightHalvesOfTwoChunksInAnotherOrderThanTheirInputHalves) {
  RankProgram& program = programs_[1];
  const Instruction first{kBackwardWeight, 1, 1}, second{kBackwardWeight, 0, 0};
  Remove(1, first);
  program.insert(program.begin() + Find(1, second) + 1, first);
  EXPECT_THAT(
      Refusal(absl::StatusCode::kInvalidArgument),
      HasSubstr("backward_weight(chunk 0, micro-batch 0): comes before backward_weight(chunk 1, micro-batch 1), "
                "which has waited longer"));
}

TEST_F(BadHalvesTest, AWholeBackwardWhileAWeightHalfIsPending) {
  RankProgram& program = programs_[0];
  const Instruction pending{kBackwardWeight, 1, 1};
  Remove(0, pending);
  program.insert(program.begin() + Find(0, {kBackward, 0, 1}) + 1, pending);
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument),
              HasSubstr("backward(chunk 0, micro-batch 0): comes before backward_weight(chunk 1, micro-batch 1)"));
}

TEST_F(BadHalvesTest, AWeightHalfOfAWholeBackward) {
  programs_[1][Find(1, {kBackwardInput, 1, 1})].operation = kBackward;
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument),
              HasSubstr("backward_weight(chunk 1, micro-batch 1): has run before, or out of order"));
  Remove(1, {kBackwardWeight, 1, 1});
  EXPECT_TRUE(CheckSchedule(programs_, shape_, {}).ok()) << "the chunk's other backward is in halves";
}

TEST_F(BadHalvesTest, AMissingWeightHalf) {
  Remove(1, {kBackwardWeight, 0, 1});
  EXPECT_EQ(Refusal(absl::StatusCode::kInvalidArgument), "rank 1 never runs backward_weight(chunk 0, micro-batch 1)");
}

TEST_F(BadScheduleTest, TailIncompleteEarlyOrOutOfOrder) {
  programs_[1].pop_back();
  EXPECT_EQ(Refusal(absl::StatusCode::kInvalidArgument), "rank 1 never runs distribute_tied_weights");
  programs_[1].push_back({kOptimizerStep});
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument),
              HasSubstr("optimizer_step: the step's tail is out of order"));
  programs_[1].back() = {kBackward, 0, 3};
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("comes after the step's tail has begun"));
}

TEST_F(BadScheduleTest, TrainingProgramIsNotForwardOnly) {
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument, {.forward_only = true}),
              HasSubstr("a forward-only program has no backward"));
}

TEST_F(BadScheduleTest, ArgumentsThatDoNotFit) {
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument, {.outstanding_sends = 0}), HasSubstr("at least 1 is needed"));
  programs_.pop_back();
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("1 programs do not fit 2 stages"));
}

}  // namespace
}  // namespace hadal
