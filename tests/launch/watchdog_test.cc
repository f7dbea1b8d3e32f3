#include "launch/watchdog.h"

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(60);

// Rank 0 waits for a message that rank 1 sends after `delay`, under a watchdog of `timeout`. What the watchdog says.
std::string Watch(absl::Duration timeout, absl::Duration delay) {
  std::string log;
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    char byte = 0;
    if (communicator.rank() == 1) {
      absl::SleepFor(delay);
      HADAL_ASSIGN_OR_RETURN(CommRequest send, communicator.Send(&byte, 1, 0, 7));
      return communicator.Wait(send, absl::Now() + kHang, "a test");
    }
    ProgramPlace place;
    place.Set(12, 4, 9, {.operation = Operation::kReceiveForward, .chunk = 1, .micro_batch = 3});
    const Watchdog watchdog(communicator, place, timeout, [&log](const std::string& line) { log += line + "\n"; });
    HADAL_ASSIGN_OR_RETURN(CommRequest receive, communicator.Receive(&byte, 1, 1, 7));
    return communicator.Wait(receive, absl::Now() + kHang, "the morning post");
  });
  EXPECT_TRUE(status.ok()) << status;
  return log;
}

TEST(WatchdogTest, SaysWhatARankWaitsForAndWhere) {
  const std::string said = Watch(absl::Milliseconds(100), absl::Milliseconds(700));
  EXPECT_THAT(said, AllOf(HasSubstr("watchdog [rank 0]: waiting for"), HasSubstr("receive from rank 1, tag 7"),
                          HasSubstr("for the morning post"),
                          HasSubstr("step 12, instruction 5 of 9: receive_forward(chunk 1, micro-batch 3)")));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "one wait is reported once:\n" << said;
}

TEST(WatchdogTest, IsSilentWhileARankGetsOn) { EXPECT_EQ(Watch(kHang, absl::Milliseconds(50)), ""); }

TEST(WatchdogTest, SaysThatARankIsBusy) {
  std::string log;
  InProcessWorld world(1);
  ProgramPlace place;
  EXPECT_EQ(place.Describe(), "before the first step");
  {
    const Watchdog watchdog(world.communicator(0), place, absl::Milliseconds(100),
                            [&log](const std::string& line) { log += line; });
    place.Set(0, 0, 4, {});
    absl::SleepFor(absl::Milliseconds(700));
  }
  EXPECT_THAT(log, HasSubstr("busy for"));
}

}  // namespace
}  // namespace hadal
