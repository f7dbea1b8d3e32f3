#include "tools/train/resume.h"

#include <filesystem>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "runtime/run_directory.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

// A run directory with a checkpoint of step 5, and the environments of starts.
class ResumeRequestTest : public ::testing::Test {
 protected:
  void SetUp() override { SaveAt(5); }

  std::string run() const { return directory_ / "run"; }
  std::string Checkpoint(int64_t step) const { return CheckpointsDirectory(run()) + "/" + CheckpointName(step); }
  // A start that claims the run directory and saves.
  void SaveAt(int64_t step) const {
    CheckpointCommitter committer = SmallCommitter(run());
    SmallState state(SmallParameters(), 1);
    ASSERT_EQ(Save(committer, state, {.step = step, .ranks = 1}).status(), absl::OkStatus());
  }
  Environment ThisStart() const {
    return [this](const char* name) {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    };
  }
  std::string Resume(const std::string& asked) const { return *ResumeOfThisAttempt(run(), asked, ThisStart()); }
  void Note(const std::string& asked, int64_t step) const {
    ASSERT_TRUE(NoteResume(run(), asked, step, ThisStart()).ok());
  }

  const TemporaryDirectory directory_;
  std::map<std::string, std::string> environment_;
};

TEST_F(ResumeRequestTest, UnderASupervisorItIsDoneOnce) {
  environment_["HADAL_JOB_START"] = "1700000000";
  for (const std::string& asked : {Checkpoint(5), std::string("never"), std::string("auto --reset best")}) {
    EXPECT_EQ(Resume(asked), asked);
    EXPECT_EQ(AppliedStep(run(), asked, ThisStart()), -1);
    Note(asked, 5);
    EXPECT_EQ(AppliedStep(run(), asked, ThisStart()), 5);
    SaveAt(5);
    EXPECT_EQ(Resume(asked), asked) << "no newer one";
    SaveAt(10);
    EXPECT_EQ(Resume(asked), "auto");
    SaveAt(15);
    EXPECT_EQ(Resume(asked), "auto");
    for (const int64_t step : {5, 10, 15}) std::filesystem::remove_all(Checkpoint(step));
  }
}

TEST_F(ResumeRequestTest, InSlurmsQueueItIsDoneOnce) {
  environment_["SLURM_JOB_ID"] = "42";
  EXPECT_EQ(Resume("never"), "never");
  Note("never", 0);
  SaveAt(10);
  EXPECT_EQ(Resume("never"), "never") << "a second srun of one allocation is no later start";
  environment_["SLURM_RESTART_COUNT"] = "0";
  EXPECT_EQ(Resume("never"), "never");
  environment_["SLURM_RESTART_COUNT"] = "1";
  EXPECT_EQ(Resume("never"), "auto");
  environment_["SLURM_JOB_ID"] = "43";
  EXPECT_EQ(Resume("never"), "never");
}

TEST_F(ResumeRequestTest, ASupervisorWithinARequeuedJobIsThatJob) {
  environment_ = {{"SLURM_JOB_ID", "42"}, {"HADAL_JOB_START", "1700000000"}};
  Note(Checkpoint(5), 5);
  SaveAt(10);
  environment_ = {{"SLURM_JOB_ID", "42"}, {"SLURM_RESTART_COUNT", "1"}, {"HADAL_JOB_START", "1700009999"}};
  EXPECT_EQ(Resume(Checkpoint(5)), "auto");
}

TEST_F(ResumeRequestTest, AnotherJobAnotherRequestAndAStartByItselfDoAsTheyAreAsked) {
  Note("never", 0);
  EXPECT_FALSE(std::filesystem::exists(CheckpointsDirectory(run()) + "/resume_request")) << "a start by itself";
  environment_["HADAL_JOB_START"] = "1700000000";
  Note("never", 0);
  SaveAt(10);
  EXPECT_EQ(Resume(Checkpoint(5)), Checkpoint(5));
  environment_["HADAL_JOB_START"] = "1700000001";
  EXPECT_EQ(Resume("never"), "never");
  environment_.clear();
  EXPECT_EQ(Resume("never"), "never");
}

// A checkpoint of another run, say: this one has nothing of its own to go on from, or only what it left behind.
TEST_F(ResumeRequestTest, AStartThatEndsBeforeItsFirstSaveLeavesItToTheNext) {
  environment_["HADAL_JOB_START"] = "1700000000";
  Note("another/checkpoints/step_00000007", 7);
  const CheckpointCommitter claims = SmallCommitter(run());
  EXPECT_EQ(Resume("another/checkpoints/step_00000007"), "another/checkpoints/step_00000007");
  std::filesystem::remove_all(Checkpoint(5));
  EXPECT_EQ(Resume("another/checkpoints/step_00000007"), "another/checkpoints/step_00000007");
  SaveAt(10);
  EXPECT_EQ(Resume("another/checkpoints/step_00000007"), "auto");
}

TEST_F(ResumeRequestTest, ADamagedNoteIsNone) {
  environment_["HADAL_JOB_START"] = "1700000000";
  Note("never", 0);
  SaveAt(10);
  ASSERT_EQ(Resume("never"), "auto");
  for (const char* text : {"", "1700000000\n\nnever\n", "1700000000\n\nnever\nx\n"}) {
    SetContents(CheckpointsDirectory(run()) + "/resume_request", text);
    EXPECT_EQ(Resume("never"), "never") << text;
  }
}

TEST_F(ResumeRequestTest, ANewRunDirectoryIsMadeForTheNote) {
  environment_["HADAL_JOB_START"] = "1700000000";
  ASSERT_TRUE(NoteResume(directory_ / "new", "never", 0, ThisStart()).ok());
  EXPECT_EQ(*ResumeOfThisAttempt(directory_ / "new", "never", ThisStart()), "never");
}

}  // namespace
}  // namespace hadal
