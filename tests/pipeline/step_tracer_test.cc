#include "pipeline/step_tracer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "pipeline/step_report.h"
#include "runtime/clock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Threads share one clock; each rank adds a skew of its own, which is what must be found.
double Skew(int rank) { return rank * 1000.25; }

TEST(ClockAlignment, FindsTheSkewWithinItsOwnErrorBound) {
  InProcessWorld world(4);
  const absl::Status status = world.Run([](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank();
    const auto clock = [rank] { return MonotonicSeconds() + Skew(rank); };
    HADAL_ASSIGN_OR_RETURN(const ClockOffset offset, MeasureClockOffset(communicator, clock, absl::Seconds(30)));
    EXPECT_LE(std::abs(offset.seconds - Skew(rank)), offset.error_seconds + 1e-9) << "rank " << rank;
    if (rank == 0) {
      EXPECT_EQ(offset.error_seconds, 0);
    } else {
      EXPECT_GT(offset.error_seconds, 0);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Clocks that read what is written here: every ping takes 10 s there and back, and the answer is given late, but for
// the fifth one, which takes 4 s and is answered in its middle.
TEST(ClockAlignment, GoesByTheShortestPingAndItsMiddle) {
  InProcessWorld world(2);
  const absl::Status status = world.Run([](Communicator& communicator) -> absl::Status {
    const bool serves = communicator.rank() == 0;
    int readings = 0;
    const auto clock = [serves, &readings] {
      const int ping = serves ? readings : readings / 2;
      const bool ends = !serves && readings % 2 == 1;
      ++readings;
      const double begin = 1000.0 * ping;
      if (serves) return begin + (ping == 4 ? 2 : 9) - 500;
      return ends ? begin + (ping == 4 ? 4 : 10) : begin;
    };
    HADAL_ASSIGN_OR_RETURN(const ClockOffset offset, MeasureClockOffset(communicator, clock, absl::Seconds(30)));
    if (serves) {
      EXPECT_EQ(offset.at_seconds, 1000.0 * (readings - 1) + 9 - 500) << "its last reading";
      return absl::OkStatus();
    }
    EXPECT_EQ(offset.seconds, 500);
    EXPECT_EQ(offset.error_seconds, 2);
    EXPECT_EQ(offset.at_seconds, 4002);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// A clock that is 2 s ahead of rank 0's at its own 100 s, and 3 s at its 200 s.
TEST(ClockAlignment, TakesTheOffsetOnTheLineOffTheRanksTime) {
  const ClockOffset begin{.seconds = 2, .at_seconds = 100}, end{.seconds = 3, .at_seconds = 200};
  EXPECT_EQ(TimeOfRankZero(100, begin, end), 98);
  EXPECT_EQ(TimeOfRankZero(150, begin, end), 147.5);
  EXPECT_EQ(TimeOfRankZero(150, begin, begin), 148) << "measured once";
}

TEST(ClockAlignment, ARankThatDoesNotAnswerIsAnError) {
  for (const int rank : {0, 1}) {
    InProcessWorld world(2);
    const auto offset = MeasureClockOffset(
        world.communicator(rank), [] { return MonotonicSeconds(); }, absl::Milliseconds(10));
    EXPECT_EQ(offset.status().code(), absl::StatusCode::kDeadlineExceeded) << rank << ": " << offset.status();
  }
}

TEST(ClockAlignment, OneRankIsItsOwnClock) {
  InProcessWorld world(1);
  const auto offset = MeasureClockOffset(
      world.communicator(0), [] { return MonotonicSeconds(); }, absl::Seconds(1));
  EXPECT_EQ(offset->seconds, 0);
}

// What a run says of samples that it leaves out, and when it does not start.
TrainOptions Options() {
  TrainOptions options;
  options.batch.source_tokens = 300;
  options.batch.target_tokens = 400;
  options.model.max_positions = 200;
  return options;
}

TEST(RunInfo, SaysWhatTheRunIs) {
  TrainOptions options = Options();
  options.model = TinyModel({.encoder_layers = 2, .vocabulary = 50, .max_positions = 200});
  options.model.target_vocabulary = 60;
  options.model.sharing = EmbeddingSharing::kNone;
  options.pipeline = {.stages = 2, .replicas = 2};
  options.stop.steps = 30;
  const ModelPlan plan = ModelPlan::Make(options.model);
  const PipelineLayout pipeline = MakePipelineLayout(plan, options.batch, options.pipeline, /*ranks=*/4).value();
  const RunInfo run = DescribeRun(options, plan, pipeline, /*threads=*/3, /*first_step=*/8);
  EXPECT_EQ(run.parameters, plan.ParameterElements());
  EXPECT_EQ(run.source_vocabulary, 50);
  EXPECT_EQ(run.target_vocabulary, 60);
  EXPECT_TRUE(run.model.ends_with(": 7 sublayers")) << run.model;
  EXPECT_EQ(run.encoder_sublayers, 4);
  EXPECT_EQ(run.decoder_sublayers, 3);
  EXPECT_EQ(run.ranks, 4);
  EXPECT_EQ(run.stages, 2);
  EXPECT_EQ(run.replicas, 2);
  EXPECT_EQ(run.threads, 3);
  EXPECT_EQ(run.layout, absl::StrCat("1f1b, chunks 1, cut before sublayers [", pipeline.borders[1],
                                     "], outstanding sends 2, replicas together, 4 micro-batches of 300/400 rows"));
  EXPECT_EQ(run.first_step, 8);
  EXPECT_EQ(run.total_steps, 30);
  PipelineLayout chosen = pipeline;
  SetRecompute(plan, {{0, 2}, {3, 4}, {7, 0}}, chosen);
  const RunInfo with = DescribeRun(options, plan, chosen, 3, 8);
  EXPECT_EQ(with.recompute_every, 4) << "what recompute_auto has chosen";
  EXPECT_EQ(with.layout, run.layout + ", 5 sublayers recomputed");
  ModelPlan speech = plan;
  speech.options.frame_width = 80;
  EXPECT_EQ(DescribeRun(options, speech, pipeline, 3, 8).frame_width, 80);
}

TEST(LeftOut, CountShareAndTheLimitsAreSaid) {
  EXPECT_EQ(DescribeLeftOut("training", 0, 345, Options()), "");
  EXPECT_EQ(DescribeLeftOut("training", 12, 345, Options()),
            "12 of 345 training samples (3.48%) are left out: a side is longer than batch.source_tokens = 300, "
            "batch.target_tokens = 400 or model.max_positions = 200");
  TrainOptions plain = Options();
  plain.model.encoder_layers = 0;
  const std::string said = DescribeLeftOut("validation", 1, 1000, plain);
  EXPECT_THAT(said, HasSubstr("1 of 1000 validation samples (0.1%)"));
  EXPECT_THAT(said, Not(HasSubstr("source_tokens"))) << "a language model has no source";
}

TEST(LeftOut, ARunThatWouldLeaveOutNearlyAllDoesNotStartUnlessTold) {
  TrainOptions options = Options();
  EXPECT_TRUE(CheckLeftOut(0, 0, options).ok());
  EXPECT_TRUE(CheckLeftOut(90, 100, options).ok()) << "as many as are allowed";
  const absl::Status refused = CheckLeftOut(91, 100, options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  for (const char* said :
       {"91 of 100 training samples (91%)", "batch.target_tokens = 400", "a share of 0.9", "raise"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(said));
  }
  options.max_left_out = 1;
  EXPECT_TRUE(CheckLeftOut(99, 100, options).ok());
  options.max_left_out = 0;
  EXPECT_TRUE(CheckLeftOut(0, 100, options).ok());
  EXPECT_FALSE(CheckLeftOut(1, 100, options).ok());
}

}  // namespace
}  // namespace hadal
