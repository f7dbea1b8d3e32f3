#include "pipeline/checkpoint/run_owner.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "runtime/machine.h"
#include "tests/support/temporary_directory.h"

std::atomic<int> data_syncs = 0;
extern "C" int fdatasync(int fd) {
  ++data_syncs;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kFirst[] = "6921b5aa-1f3c-09abcdef", kSecond[] = "6921b5bb-2a-00000001";
constexpr absl::Duration kNever = absl::Hours(1);

class RunOwnerTest : public ::testing::Test {
 protected:
  std::unique_ptr<RunOwnership> Claim(const std::string& attempt, absl::Duration heartbeat = kNever) {
    auto claimed =
        RunOwnership::Claim({.run_directory = directory_.path(), .attempt = attempt, .heartbeat = heartbeat});
    EXPECT_TRUE(claimed.ok()) << claimed.status();
    return *std::move(claimed);
  }
  absl::StatusOr<std::string> Find(absl::Duration silence = kNever) {
    return FindPredecessor(directory_.path(), silence, [this](const std::string& text) {
      told_.push_back(text);
      if (on_wait_) on_wait_();
    });
  }
  std::string record() const { return directory_ / "checkpoints/attempt"; }
  // Changes the boot id of the record, whose place is then no longer this one.
  void MoveElsewhere(const std::string& attempt) const { FlipBit(record(), attempt.size() + HostName().size() + 2); }

  const TemporaryDirectory directory_;
  std::vector<std::string> told_;
  std::function<void()> on_wait_;
};

TEST_F(RunOwnerTest, ADirectoryThatNobodyHasClaimedIsFree) {
  EXPECT_EQ(*Find(), "");
  SetContents(directory_ / "checkpoints", "a file");
  EXPECT_FALSE(Find().ok()) << "not known";
}

TEST_F(RunOwnerTest, AnAttemptHereKeepsOthersOutByName) {
  const auto owner = Claim(kFirst);
  const absl::Status refused = Find().status();
  EXPECT_TRUE(absl::IsAborted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(directory_.path() + " is in use"), HasSubstr(kFirst), HasSubstr("on " + HostName()),
                    HasSubstr("process " + std::to_string(getpid()) + " "), HasSubstr(", since 20"),
                    HasSubstr("--take-over"), Not(HasSubstr("stopped"))));
  EXPECT_THAT(told_, IsEmpty()) << "at once";
}

TEST_F(RunOwnerTest, AnAttemptThatHasEndedKeepsNobodyOut) {
  Claim(kFirst).reset();
  EXPECT_EQ(*Find(), kFirst);
  MoveElsewhere(kFirst);
  EXPECT_EQ(*Find(), kFirst) << "wherever it was";
  EXPECT_THAT(told_, IsEmpty());
}

// Also while nobody has waited for the killed process.
TEST_F(RunOwnerTest, AStoppedProcessKeepsOthersOutAndAKilledOneDoesNot) {
  const pid_t child = fork();
  if (child == 0) {
    const auto owner = Claim(kFirst);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr("(stopped by a signal)"));
  kill(child, SIGKILL);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, child, &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(*Find(), kFirst);
  waitpid(child, &status, 0);
  EXPECT_EQ(*Find(), kFirst);
  EXPECT_THAT(told_, IsEmpty()) << "known at once";
}

TEST_F(RunOwnerTest, APidThatAnotherProcessHasByNowKeepsNobodyOut) {
  const auto owner = Claim(kFirst);
  const std::string text = Contents(record()), pid = "\n" + std::to_string(getpid()) + " ";
  SetContents(record(), std::string(text).insert(text.find(pid) + pid.size(), "1"));
  EXPECT_EQ(*Find(), kFirst);
}

TEST_F(RunOwnerTest, HeartbeatsFromElsewhereKeepOthersOut) {
  auto owner = Claim(kFirst, absl::Milliseconds(5));
  MoveElsewhere(kFirst);
  EXPECT_THAT(std::string(Find(absl::Seconds(10)).status().message()), HasSubstr("is in use"));
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0], AllOf(HasSubstr("waiting 10s"), HasSubstr(kFirst)));
  owner.reset();
  EXPECT_GT(data_syncs, 0) << "other hosts may not see heartbeats that were not synced";
}

TEST_F(RunOwnerTest, SilenceElsewhereDoesNot) {
  const auto owner = Claim(kFirst);
  MoveElsewhere(kFirst);
  EXPECT_EQ(*Find(absl::Milliseconds(20)), kFirst);
  EXPECT_THAT(told_, SizeIs(1));
}

TEST_F(RunOwnerTest, TheWaitForASignIsOverWhenTheLaunchEnds) {
  auto owner = Claim(kFirst);
  MoveElsewhere(kFirst);
  on_wait_ = [&] { owner.reset(); };
  EXPECT_EQ(*Find(absl::Seconds(1)), kFirst);
}

TEST_F(RunOwnerTest, AnAttemptThatClaimsDuringTheWaitKeepsOthersOut) {
  const auto owner = Claim(kFirst);
  MoveElsewhere(kFirst);
  std::unique_ptr<RunOwnership> next;
  on_wait_ = [&] { next = Claim(kSecond); };
  EXPECT_THAT(std::string(Find(absl::Seconds(1)).status().message()), HasSubstr(kSecond));
}

TEST_F(RunOwnerTest, ARecordWithoutAProcessKeepsNobodyOut) {
  std::filesystem::create_directory(directory_ / "checkpoints");
  SetContents(record(), std::string(kFirst) + "\n");
  EXPECT_EQ(*Find(), kFirst);
}

// It may go on with its heartbeats, and end, at any time.
TEST_F(RunOwnerTest, TheLastClaimCountsAndTheOneBeforeChangesNothingMore) {
  auto first = Claim(kFirst, absl::Milliseconds(1));
  ASSERT_TRUE(first->Check().ok());
  const auto second = Claim(kSecond);
  const std::string text = Contents(record());
  const absl::Status lost = first->Check();
  EXPECT_TRUE(absl::IsAborted(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), AllOf(HasSubstr("has taken it over"), HasSubstr(kSecond)));
  EXPECT_TRUE(absl::IsAborted(CheckOwner(directory_.path(), kFirst)));
  absl::SleepFor(absl::Milliseconds(20));
  first.reset();
  EXPECT_EQ(Contents(record()), text);
  EXPECT_TRUE(second->Check().ok());
}

TEST_F(RunOwnerTest, AClaimIsOnlyOnTheOwnerThatWasFound) {
  const auto claim = [this](const std::string& predecessor) {
    return RunOwnership::Claim({.run_directory = directory_.path(), .attempt = kSecond, .predecessor = predecessor});
  };
  auto first = Claim(kFirst);
  EXPECT_TRUE(absl::IsAborted(claim("").status())) << "it has begun meanwhile";
  EXPECT_TRUE(first->Check().ok());
  EXPECT_TRUE(claim(kFirst).ok()) << "silent elsewhere, say";
  EXPECT_TRUE(claim("").ok()) << "it has ended meanwhile";
}

TEST_F(RunOwnerTest, ARunDirectoryThatIsRemovedIsLost) {
  const auto owner = Claim(kFirst);
  std::filesystem::rename(directory_ / "checkpoints", directory_ / "moved");
  EXPECT_TRUE(absl::IsInternal(owner->Check())) << "it may come back";
  std::filesystem::remove_all(directory_ / "moved");
  std::filesystem::create_directory(directory_ / "checkpoints");
  EXPECT_THAT(std::string(owner->Check().message()), HasSubstr(directory_.path() + " was removed while"));
}

}  // namespace
}  // namespace hadal
