#include "launch/watchdog.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "runtime/clock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(60);

// What a watchdog says, on its own thread.
class Said {
 public:
  Watchdog::Say Listener() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      text_ += line + "\n";
    };
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // Waits until it has said `word`, however late a thread of a busy machine is.
  void AwaitWord(const std::string& word) const {
    for (const Stopwatch watch; !absl::StrContains(text(), word) && absl::Seconds(watch.Seconds()) < kHang;) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// Rank 0 waits for a message under a watchdog of `timeout`; rank 1 sends it after `pause`. What the watchdog says.
std::string Watch(absl::Duration timeout, const std::function<void(const Said&)>& pause) {
  Said said;
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    char byte = 0;
    if (communicator.rank() == 1) {
      pause(said);
      HADAL_ASSIGN_OR_RETURN(CommRequest send, communicator.Send(&byte, 1, 0, 7));
      return communicator.Wait(send, absl::Now() + kHang, "a test");
    }
    CurrentInstruction current;
    current.Set(12, 4, 9, {.operation = Operation::kReceiveForward, .chunk = 1, .micro_batch = 3});
    const Watchdog watchdog(communicator, current, timeout, said.Listener());
    HADAL_ASSIGN_OR_RETURN(CommRequest receive, communicator.Receive(&byte, 1, 1, 7));
    return communicator.Wait(receive, absl::Now() + kHang, "the morning post");
  });
  EXPECT_TRUE(status.ok()) << status;
  return said.text();
}

TEST(WatchdogTest, SaysWhatARankWaitsForAndWhere) {
  const std::string said = Watch(absl::Milliseconds(100), [](const Said& said) {
    said.AwaitWord("waiting for");
    absl::SleepFor(absl::Milliseconds(500));  // time to say it again
  });
  EXPECT_THAT(said, AllOf(HasSubstr("watchdog [rank 0]: waiting for"), HasSubstr("receive from rank 1, tag 7"),
                          HasSubstr("for the morning post"),
                          HasSubstr("step 13, instruction 5 of 9: receive_forward(chunk 1, micro-batch 3)")));
  const size_t first = said.find("waiting for");
  EXPECT_EQ(said.find("waiting for", first + 1), std::string::npos) << "one wait is reported once:\n" << said;
}

// A rank that waited for 1 s and then works is busy since the wait's end, not since the instruction's start.
TEST(WatchdogTest, AWaitIsNotCountedAsWork) {
  constexpr absl::Duration kWaited = absl::Seconds(1);
  Said said;
  InProcessWorld world(2);
  absl::Duration waited, worked;
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    char byte = 0;
    if (communicator.rank() == 1) {
      absl::SleepFor(kWaited);
      HADAL_ASSIGN_OR_RETURN(CommRequest send, communicator.Send(&byte, 1, 0, 7));
      return communicator.Wait(send, absl::Now() + kHang, "a test");
    }
    CurrentInstruction current;
    EXPECT_EQ(current.Describe(), "before the first step");
    current.Set(0, 0, 4, {});
    const Watchdog watchdog(communicator, current, absl::Milliseconds(200), said.Listener());
    const Stopwatch waiting;
    HADAL_ASSIGN_OR_RETURN(CommRequest receive, communicator.Receive(&byte, 1, 1, 7));
    HADAL_RETURN_IF_ERROR(communicator.Wait(receive, absl::Now() + kHang, "a message"));
    waited = absl::Seconds(waiting.Seconds());
    const Stopwatch working;
    said.AwaitWord("busy for");
    worked = absl::Seconds(working.Seconds());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  const std::string text = said.text();
  const std::string busy = "busy for ";
  const size_t start = text.find(busy) + busy.size();
  absl::Duration reported;
  ASSERT_TRUE(absl::ParseDuration(text.substr(start, text.find(';', start) - start), &reported)) << text;
  // Unless this machine is too busy: its watchdog may not have looked during the wait.
  EXPECT_TRUE(reported < kWaited || worked > kWaited / 2 || waited > kWaited * 1.5) << text;
}

// What its header promises: a rank has printed before its wait ends the job. Its thread may be late on a busy machine,
// but not by half of every timeout.
TEST(WatchdogTest, SpeaksBeforeTheWaitReachesItsTimeout) {
  std::string text;
  for (const int seconds : {3, 12, 30}) {
    const absl::Duration timeout = absl::Seconds(seconds);
    Said said;
    InProcessWorld world(2);
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      if (communicator.rank() == 1) return absl::OkStatus();  // and sends nothing
      char byte = 0;
      CurrentInstruction current;
      const Watchdog watchdog(communicator, current, timeout, said.Listener());
      HADAL_ASSIGN_OR_RETURN(CommRequest receive, communicator.Receive(&byte, 1, 1, 7));
      const absl::Status waited = communicator.Wait(receive, absl::Now() + timeout, "a message that nobody sends");
      EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
      text = said.text();
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    if (absl::StrContains(text, "for a message that nobody sends")) break;
  }
  EXPECT_THAT(text, HasSubstr("for a message that nobody sends"));
}

// Far longer than its patience of 0.1 s, and no instruction takes that long, unless this machine is too busy.
TEST(WatchdogTest, IsSilentWhileARankGetsOn) {
  Said said;
  InProcessWorld world(1);
  CurrentInstruction current;
  double longest = 0;
  {
    const Watchdog watchdog(world.communicator(0), current, absl::Milliseconds(200), said.Listener());
    current.Set(0, 0, 4, {});
    for (const Stopwatch watch; watch.Seconds() < 0.5;) {
      const double since = current.since_seconds().value();
      absl::SleepFor(absl::Milliseconds(5));
      current.Set(0, 1, 4, {});
      longest = std::max(longest, current.since_seconds().value() - since);
    }
  }
  EXPECT_TRUE(said.text().empty() || longest >= 0.1) << said.text();
}

// No memory for a line, say: neither the run nor the watchdog ends by it.
TEST(WatchdogTest, WhatItCannotSayDoesNotEndTheRun) {
  InProcessWorld world(1);
  CurrentInstruction current;
  std::atomic<int> tries = 0;
  const auto await = [&tries](int count) {
    for (const absl::Time start = absl::Now(); tries < count && absl::Now() - start < kHang;) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  };
  ::testing::internal::CaptureStderr();
  {
    const Watchdog watchdog(world.communicator(0), current, absl::Milliseconds(100), [&](const std::string& /*line*/) {
      if (++tries == 1) throw std::bad_alloc();
      throw 7;
    });
    current.Set(0, 0, 4, {});
    await(1);
    current.Set(0, 1, 4, {});  // it has got on, and stands again
    await(2);
  }
  EXPECT_EQ(tries, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("watchdog [rank 0]: this rank is stuck"), HasSubstr("bad_alloc"),
                    HasSubstr("an exception without a message")));
}

}  // namespace
}  // namespace hadal
