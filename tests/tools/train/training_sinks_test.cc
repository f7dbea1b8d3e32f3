#include "tools/train/training_sinks.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "launch/exit_code.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainingSinksTest : public ::testing::Test {
 protected:
  std::string run() const { return directory_ / "run"; }
  std::string Log() const { return Contents(run() + "/logs/rank_00003.log"); }

  const TemporaryDirectory directory_;
  TrainingSinks sinks_{{.version = "0.1.0", .rank = 3, .ranks = 8}, directory_ / "run"};
};

TEST_F(TrainingSinksTest, AnErrorBeforeTheLogIsOpenIsLogged) {
  sinks_.Tell("warning: the driver is old");
  sinks_.LogEnd(kExitError, absl::ResourceExhaustedError("the GPU is full"));
  EXPECT_THAT(Log(),
              AllOf(HasSubstr("Z start: hadal 0.1.0, rank 3 of 8 on "), HasSubstr("Z warning: the driver is old\n"),
                    HasSubstr("Z end: exit code 1: the GPU is full\n"), Not(HasSubstr("stage"))));
}

TEST_F(TrainingSinksTest, AConfigErrorMakesNoRunDirectory) {
  sinks_.LogEnd(kExitUsage, absl::InvalidArgumentError("model.heads = 7 is not allowed"));
  EXPECT_FALSE(std::filesystem::exists(run()));
}

TEST_F(TrainingSinksTest, AConfigErrorIsLoggedInARunDirectoryThatIsThere) {
  std::filesystem::create_directory(run());
  sinks_.LogEnd(kExitUsage, absl::InvalidArgumentError("model.heads = 7 is not allowed"));
  EXPECT_THAT(Log(), HasSubstr("Z end: exit code 2: model.heads = 7 is not allowed\n"));
}

TEST_F(TrainingSinksTest, WhereNothingCanBeWrittenNothingIs) {
  SetContents(run(), "a file");
  sinks_.LogEnd(kExitError, absl::ResourceExhaustedError("the GPU is full"));
  EXPECT_EQ(Contents(run()), "a file");
}

TEST_F(TrainingSinksTest, AnAttemptThatIsKeptOutWritesNothing) {
  std::filesystem::create_directory(run());
  sinks_.LogEnd(kExitError, absl::AbortedError("run is in use by another attempt"));
  EXPECT_TRUE(std::filesystem::is_empty(run()));
}

TEST_F(TrainingSinksTest, AnOpenLogSaysWhichPartTheRankHasAndWhichAttempt) {
  ASSERT_TRUE(sinks_.Open({.stages = 4, .replicas = 2}, "", 0, "6921b5aa-1f3c-09abcdef").ok());
  EXPECT_THAT(Log(), AllOf(HasSubstr("rank 3 of 8 (stage 1 of 4, replica 1 of 2) on "),
                           HasSubstr(", attempt 6921b5aa-1f3c-09abcdef, ")));
}

// Stopped between its claim and the opening of its files, while another attempt claims.
TEST_F(TrainingSinksTest, AnAttemptThatHasLostTheDirectoryReplacesNoMetrics) {
  TrainingSinks late({.rank = 0}, run());
  CheckpointCommitter next = SmallCommitter(run());
  SetContents(run() + "/metrics.jsonl", "the next attempt's\n");
  EXPECT_TRUE(absl::IsAborted(late.Open({}, "", 1, "6921b5aa-1f3c-09abcdef")));
  EXPECT_EQ(Contents(run() + "/metrics.jsonl"), "the next attempt's\n");
  EXPECT_FALSE(std::filesystem::exists(run() + "/metrics.jsonl.6921b5aa-1f3c-09abcdef"));
}

TEST_F(TrainingSinksTest, TheFirstRankShowsItsConfigInTensorBoard) {
  const std::string attempt = "6921b5aa-1f3c-09abcdef";
  TrainingSinks sinks({.rank = 0, .ranks = 1}, run());
  ASSERT_TRUE(CheckpointCommitter({.run_directory = run(), .attempt = attempt}).Claim().ok());
  ASSERT_TRUE(sinks.Open({}, "seed: 7\n", 1, attempt).ok());
  sinks.sink().OnStart({});
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(run() + "/tb")) events += Contents(file.path().string());
  EXPECT_THAT(events, AllOf(HasSubstr("config"), HasSubstr("seed: 7")));
}

TEST_F(TrainingSinksTest, NoTimelineUnlessAsked) { EXPECT_FALSE(sinks_.MakeTraceRequest("", {.steps = 10})->wanted()); }

TEST_F(TrainingSinksTest, ATimelineUpToTheLastStepOfTheRunAndNotBeyond) {
  const TraceRequest request = sinks_.MakeTraceRequest("steps=7-10", {.steps = 10}).value();
  EXPECT_EQ(request.first_step, 7);
  EXPECT_EQ(request.last_step, 10);
  EXPECT_TRUE(sinks_.MakeTraceRequest("steps=7-1000", {.minutes = 1}).ok()) << "nobody knows its last step";
  const absl::Status status = sinks_.MakeTraceRequest("steps=7-11", {.steps = 10}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("--trace steps=7-11"), HasSubstr("last step is 10")));
  EXPECT_EQ(sinks_.MakeTraceRequest("steps", {.steps = 10}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hadal
