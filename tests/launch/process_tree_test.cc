#include "launch/guardian.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

void Nothing() {}

// Starts a child that runs `live`. Returns then; the child runs `after` and waits for signals.
pid_t StartChild(const std::function<void()>& live, const std::function<void()>& after = Nothing) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    live();
    if (write(ready[1], "x", 1) != 1) _exit(1);
    after();
    while (true) pause();
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

class ProcessTree : public ::testing::Test {
 protected:
  void SetUp() override { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  void TearDown() override { EndDescendants(kPatience); }
};

TEST_F(ProcessTree, EndsAGrandchildAndWaitsForItsEnd) {
  StartChild([] { StartChild(Nothing); });
  EXPECT_EQ(Descendants().size(), 2u);
  const DescendantsEnd end = EndDescendants(kPatience);
  EXPECT_EQ(end.killed, 2);
  EXPECT_EQ(end.living, 0);
  EXPECT_EQ(EndDescendants(kPatience).killed, 0) << "they have gone";
}

// As a daemon: a session of its own, and its parent has ended.
TEST_F(ProcessTree, FindsOneThatHasLeftTheSession) {
  const pid_t parent = StartChild([] {
    StartChild([] {
      setsid();
      StartChild([] { setsid(); });
    });
  });
  kill(parent, SIGKILL);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  ASSERT_EQ(Descendants().size(), 2u);
  EXPECT_EQ(Descendants()[0].parent, getpid());
  EXPECT_EQ(EndDescendants(kPatience).killed, 2);
}

TEST_F(ProcessTree, SaysWhatHasNotGoneInTime) {
  StartChild(Nothing);
  const DescendantsEnd end = EndDescendants(absl::ZeroDuration());
  EXPECT_EQ(end.killed, 1);
  EXPECT_EQ(end.living, 1);
  EXPECT_EQ(EndDescendants(kPatience).living, 0);
}

// As a rank that crashes: its first thread has ended, and the others keep its memory.
TEST_F(ProcessTree, AProcessLivesAsLongAsOneOfItsThreads) {
  const pid_t pid = StartChild(
      [] {
        std::thread([] {
          while (true) pause();
        }).detach();
      },
      [] { syscall(SYS_exit, 0); });  // this thread alone
  const std::string stat = absl::StrCat("/proc/", pid, "/stat");
  while (!absl::StrContains(Contents(stat), ") Z ")) usleep(1000);
  const DescendantsEnd end = EndDescendants(kPatience);
  EXPECT_EQ(end.killed, 1);
  EXPECT_EQ(end.living, 0);
}

void Handle() {
  ::signal(SIGUSR1, [](int) { _exit(7); });
}

// Nobody waits for it.
bool Ended(pid_t pid) {
  const std::vector<ProcessEntry> now = Descendants();
  const auto entry = std::ranges::find(now, pid, &ProcessEntry::pid);
  return entry == now.end() || entry->state == 'Z';
}

// As bash ── mpirun ── rank. All handle USR1, bash by ending, as it does with a trap on EXIT.
TEST_F(ProcessTree, ASignalGoesToTheUppermostThatHandlesIt) {
  const pid_t script = StartChild([] {
    StartChild([] {
      StartChild(Handle);
      Handle();
    });
    prctl(PR_SET_NAME, "bash");
    Handle();
  });
  const std::vector<ProcessEntry> tree = Descendants();
  ASSERT_EQ(tree.size(), 3u);
  SignalHandlers(tree, SIGUSR1, script);
  while (!Ended(tree[1].pid)) usleep(1000);
  EXPECT_FALSE(Ended(script)) << "the script waits for mpirun";
  EXPECT_FALSE(Ended(tree[2].pid)) << "mpirun passes it on";
}

// As bash ── srun, which blocks USR1 and has a thread that waits for it.
TEST_F(ProcessTree, ASignalThatIsWaitedForIsHandled) {
  const pid_t script = StartChild([] {
    static sigset_t waited;
    sigemptyset(&waited);
    sigaddset(&waited, SIGUSR1);
    StartChild([] { sigprocmask(SIG_BLOCK, &waited, nullptr); },
               [] {
                 std::thread([] {
                   int signal = 0;
                   sigwait(&waited, &signal);
                   _exit(7);
                 }).detach();
               });
    prctl(PR_SET_NAME, "bash");
    Handle();
  });
  const pid_t waiting = Descendants()[1].pid;
  SignalHandlers(Descendants(), SIGUSR1, script);
  while (!Ended(waiting) && !Ended(script)) usleep(1000);
  EXPECT_FALSE(Ended(script)) << "the script waits for srun";
}

TEST_F(ProcessTree, ASignalThatNoneHandlesGoesToTheJob) {
  const pid_t job = StartChild([] { StartChild(Nothing); });
  SignalHandlers(Descendants(), SIGUSR1, job);
  int status = 0;
  ASSERT_EQ(waitpid(job, &status, 0), job);
  EXPECT_EQ(WTERMSIG(status), SIGUSR1);
}

}  // namespace
}  // namespace hadal
