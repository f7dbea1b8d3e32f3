#include "launch/job/process_session.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "gtest/gtest.h"

namespace hadal {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// A session whose leader has ended and is not yet waited for, and of which one process is left.
class LeftOver {
 public:
  // `live`: what that process does, after which it is not heard of again.
  explicit LeftOver(const std::function<void()>& live) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    leader_ = fork();
    if (leader_ == 0) {
      setsid();
      if (fork() > 0) _exit(0);
      if (write(ready[1], "x", 1) == 1) live();
      while (true) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    siginfo_t ended = {};
    EXPECT_EQ(waitid(P_PID, leader_, &ended, WEXITED | WNOWAIT), 0);
  }
  ~LeftOver() { waitpid(leader_, nullptr, 0); }

  pid_t leader() const { return leader_; }

 private:
  pid_t leader_ = -1;
};

TEST(ProcessSession, EndsWhatIsLeftAndWaitsForItsEnd) {
  const LeftOver left([] {});
  const SessionEnd end = EndSession(left.leader(), kPatience);
  EXPECT_EQ(end.killed, 1);
  EXPECT_EQ(end.living, 0);
  EXPECT_EQ(EndSession(left.leader(), kPatience).killed, 0) << "it has gone";
}

TEST(ProcessSession, SaysWhatHasNotGoneInTime) {
  const LeftOver left([] {});
  const SessionEnd end = EndSession(left.leader(), absl::ZeroDuration());
  EXPECT_EQ(end.killed, 1);
  EXPECT_EQ(end.living, 1);
  EXPECT_EQ(EndSession(left.leader(), kPatience).living, 0);
}

// As a rank that crashes: its first thread has ended, and the others keep its memory.
TEST(ProcessSession, AProcessLivesAsLongAsOneOfItsThreads) {
  const LeftOver left([] {
    std::thread([] {
      while (true) pause();
    }).detach();
    syscall(SYS_exit, 0);  // this thread alone
  });
  usleep(200000);  // until the first thread has ended
  const SessionEnd end = EndSession(left.leader(), kPatience);
  EXPECT_EQ(end.killed, 1);
  EXPECT_EQ(end.living, 0);
}

}  // namespace
}  // namespace hadal
