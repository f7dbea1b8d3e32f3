#include "launch/start_deadline.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "launch/exit_code.h"

namespace hadal {
namespace {

TEST(StartDeadlineDeathTest, AProcessThatWaitsTooLongSaysSoAndExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait = [] {
    const StartDeadline deadline("rank 3", absl::Milliseconds(50));
    absl::SleepFor(absl::Seconds(30));
  };
  EXPECT_EXIT(wait(), ::testing::ExitedWithCode(kExitHang), "hadal \\[rank 3\\]: gave up after 50ms waiting for all");
}

TEST(StartDeadlineTest, NothingHappensOnceItIsGone) {
  { const StartDeadline deadline("rank 0", absl::Seconds(2)); }
  absl::SleepFor(absl::Milliseconds(2100));
}

}  // namespace
}  // namespace hadal
