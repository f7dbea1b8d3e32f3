#include "launch/train/train_start.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/job/exit_code.h"
#include "runtime/run_directory.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/config/parsed_config.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSettings[] = "learning_rate { peak: 1e-3 } stop { steps: 20 }";

// What a run of a directory with checkpoints of steps 5 and 10 begins at.
class TrainStartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CheckpointCommitter committer = SmallCommitter(run());
    SmallState state(SmallParameters(), 1);
    for (const int64_t step : {5, 10}) {
      const auto saved = Save(committer, state, {.step = step, .ranks = 1, .config_text = kSettings});
      ASSERT_TRUE(saved.ok()) << saved.status();
    }
    arguments_.run_directory = run();
  }

  std::string run() const { return directory_ / "run"; }
  std::string Checkpoint(int64_t step) const { return CheckpointsDirectory(run()) + "/" + CheckpointName(step); }
  void Damage(int64_t step) const { std::filesystem::remove(Checkpoint(step) + "/rank_00000.safetensors"); }
  absl::StatusOr<std::string> Find(const std::string& settings = kSettings) {
    return FindResume(arguments_, Parsed(settings), model_, sinks_);
  }
  // What people have been told.
  std::string Told() {
    sinks_.LogEnd(kExitDone, "");
    return Contents(run() + "/logs/rank_00000.log");
  }

  const TemporaryDirectory directory_;
  TrainArguments arguments_;
  std::vector<CheckpointParameter> model_ = SmallParameters();
  TrainingSinks sinks_{{.rank = 0, .ranks = 1}, directory_ / "run"};
};

TEST_F(TrainStartTest, TheNewestCheckpointOfTheRun) { EXPECT_EQ(*Find(), Checkpoint(10)); }

TEST_F(TrainStartTest, TheOneThatIsNamed) {
  arguments_.resume = Checkpoint(5);
  EXPECT_EQ(*Find(), Checkpoint(5));
}

TEST_F(TrainStartTest, NoneWhereNoneIsWantedOrThere) {
  arguments_.resume = "never";
  EXPECT_EQ(*Find(), "");
  arguments_.resume = "auto";
  arguments_.run_directory = directory_ / "another";
  EXPECT_EQ(*Find(), "");
}

TEST_F(TrainStartTest, ADamagedOneIsPassedOverUntilNoneIsLeft) {
  Damage(10);
  EXPECT_EQ(*Find(), Checkpoint(5));
  Damage(5);
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kDataLoss) << "never a silent new start";
}

TEST_F(TrainStartTest, ChangedSettingsAreAskedAbout) {
  constexpr char kChanged[] = "learning_rate { peak: 2e-3 } stop { steps: 20 }";
  const absl::Status status = Find(kChanged).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(Checkpoint(10)), HasSubstr("learning_rate.peak: 0.001 -> "), HasSubstr("Give --accept-changes")));
  arguments_.accept_changes = true;
  EXPECT_EQ(*Find(kChanged), Checkpoint(10));
  EXPECT_THAT(Told(), AllOf(HasSubstr("with changed settings"), HasSubstr("learning_rate.peak: 0.001 -> ")));
}

TEST_F(TrainStartTest, OneCheckpointIsNamedToBeginFrom) {
  arguments_.init_from = "elsewhere";
  EXPECT_EQ(*Find(), Checkpoint(10)) << "a run that has begun goes on";
  arguments_.resume = Checkpoint(5);
  const absl::Status status = Find().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(Checkpoint(5)), HasSubstr("--init-from elsewhere")));
  arguments_.resume = "never";
  EXPECT_EQ(*Find(), "");
}

TEST_F(TrainStartTest, NothingIsOfferedForAnotherModel) {
  model_.pop_back();
  const absl::Status status = Find("learning_rate { peak: 2e-3 } stop { steps: 20 }").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("learning_rate.peak: 0.001 -> "), HasSubstr("It cannot: the checkpoint is of another model"),
            HasSubstr("Give the settings of before, --resume never"), Not(HasSubstr("--accept-changes"))));
}

TEST_F(TrainStartTest, WhatAResumedRunMayChangeIsNot) {
  EXPECT_EQ(*Find("learning_rate { peak: 1e-3 } stop { steps: 30 }"), Checkpoint(10));
  EXPECT_THAT(Told(), Not(HasSubstr("settings")));
}

}  // namespace
}  // namespace hadal
