#include "launch/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
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
std::optional<ChildEnd> WaitFor(ChildProcess& child) {
  const Stopwatch watch;
  while (watch.Seconds() < 10) {
    if (std::optional<ChildEnd> end = child.Poll()) return end;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return std::nullopt;
}

class ChildProcessTest : public ::testing::Test {
 protected:
  absl::StatusOr<ChildProcess> Start(const std::string& script) {
    return ChildProcess::Start({"bash", "-c", script}, log_);
  }
  std::string Log() { return ReadFile(log_, 1 << 20).value(); }

  TemporaryDirectory directory_;
  const std::string log_ = JoinPath(directory_.path(), "log");
};

TEST_F(ChildProcessTest, TellsItsExitCodeOnceAndKeepsItsOutput) {
  auto child = Start("echo said; echo warned >&2; exit 7");
  const std::optional<ChildEnd> end = WaitFor(*child);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 7);
  EXPECT_EQ(Log(), "said\nwarned\n");
  EXPECT_FALSE(child->Poll().has_value());
  auto second = Start("echo again");
  ASSERT_TRUE(WaitFor(*second).has_value());
  EXPECT_EQ(Log(), "said\nwarned\nagain\n");
}

TEST_F(ChildProcessTest, CountsTheTimeOfItsOwnChildren) {
  auto child = Start("bash -c 'for ((i = 0; i < 300000; ++i)); do :; done'; exit 0");
  const std::optional<ChildEnd> end = WaitFor(*child);
  ASSERT_TRUE(end.has_value());
  EXPECT_GT(end->cpu_seconds, 0.01);
}

TEST_F(ChildProcessTest, IsAskedToStopByUsr1) {
  auto child = Start("trap 'exit 85' USR1; echo ready; while :; do sleep 0.01; done");
  const Stopwatch watch;
  while (Log() != "ready\n" && watch.Seconds() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  child->AskToStop();
  const std::optional<ChildEnd> end = WaitFor(*child);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 85);
}

// Of a supervised `hadal compare`, the end that counts is its own, not that of the run it started last.
TEST_F(ChildProcessTest, ReportsNothingToAParentsSupervisor) {
  setenv(kReportVariable, "report", /*overwrite=*/1);
  auto child = Start("exit ${HADAL_SUPERVISOR_REPORT:+7}");
  EXPECT_EQ(WaitFor(*child)->exit_code, 0);
}

TEST_F(ChildProcessTest, AnEndBySignalIsItsNumberAnd128) {
  auto child = Start("kill -KILL $$");
  EXPECT_EQ(WaitFor(*child)->exit_code, 128 + 9);
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

TEST_F(ChildProcessTest, WhatCannotBeRunEndsWithUsageAndALogWithNoPlaceIsAnError) {
  auto child = ChildProcess::Start({"/no/such/command"}, log_);
  EXPECT_EQ(WaitFor(*child)->exit_code, 2);
  EXPECT_THAT(Log(), ::testing::HasSubstr("cannot be run"));
  EXPECT_FALSE(ChildProcess::Start({"true"}, JoinPath(directory_.path(), "gone/log")).ok());
}

}  // namespace
}  // namespace hadal
