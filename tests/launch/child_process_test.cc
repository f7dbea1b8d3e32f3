#include "launch/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"
#include "launch/job_report.h"
#include "runtime/clock.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

// Waits ten seconds at most.
std::optional<int> WaitFor(ChildProcess& child) {
  const Stopwatch watch;
  while (watch.Seconds() < 10) {
    if (const std::optional<int> code = child.Poll()) return code;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return std::nullopt;
}

class ChildProcessTest : public ::testing::Test {
 protected:
  absl::StatusOr<ChildProcess> Start(const std::string& script) {
    return ChildProcess::Start({"bash", "-c", "exec > " + log_ + "; " + script});
  }
  std::string Log() { return ReadFile(log_, 1 << 20).value_or(""); }

  TemporaryDirectory directory_;
  const std::string log_ = JoinPath(directory_.path(), "log");
};

TEST_F(ChildProcessTest, ReturnsItsExitCodeOnce) {
  auto child = Start("exit 7");
  EXPECT_EQ(WaitFor(*child), 7);
  EXPECT_FALSE(child->Poll().has_value());
}

TEST_F(ChildProcessTest, ReportsNothingToAParentsSupervisor) {
  setenv(kReportVariable, "report", /*overwrite=*/1);
  auto child = Start("exit ${HADAL_SUPERVISOR_REPORT:+7}");
  EXPECT_EQ(WaitFor(*child), 0);
}

TEST_F(ChildProcessTest, AnEndBySignalIsItsNumberAnd128) {
  auto child = Start("kill -KILL $$");
  EXPECT_EQ(WaitFor(*child), 128 + 9);
}

TEST_F(ChildProcessTest, TakesTheSignalsThatItsOwnerBlocks) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  auto child = Start("kill -TERM $$; exit 7");
  EXPECT_EQ(WaitFor(*child), 128 + SIGTERM);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(ChildProcessTest, EndsWithItsOwner) {
  pid_t pid = -1;
  {
    auto child = Start("echo $$; exec sleep 30");
    const Stopwatch watch;
    while (Log().empty() && watch.Seconds() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(absl::SimpleAtoi(Log(), &pid)) << Log();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

// The supervisor is a subreaper: what a probe leaves behind becomes its child.
TEST_F(ChildProcessTest, LeavesNoZombieOfItsGroup) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ASSERT_EQ(mkfifo(log_.c_str(), 0600), 0);
  const FileDescriptor output(open(log_.c_str(), O_RDWR | O_CLOEXEC));
  {
    auto child = Start("sleep 1000 & echo up; wait");
    char up[3];
    ASSERT_EQ(read(output.get(), up, sizeof(up)), 3);
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "there are children";
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(ChildProcessTest, WhatCannotBeRunEndsWithUsage) {
  auto child = ChildProcess::Start({"/no/such/command"});
  EXPECT_EQ(WaitFor(*child), 2);
}

}  // namespace
}  // namespace hadal
