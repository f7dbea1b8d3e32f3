#include "runtime/deadline.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(Deadline, PassesWhenItsTimeIsOver) {
  const Deadline deadline(absl::Milliseconds(50));
  EXPECT_GT(deadline.Left(), absl::ZeroDuration());
  EXPECT_LE(deadline.Left(), absl::Milliseconds(50));
  absl::SleepFor(absl::Milliseconds(60));
  EXPECT_TRUE(deadline.Passed());
  EXPECT_LT(deadline.Left(), absl::ZeroDuration());
}

TEST(Deadline, MayBeNowAndNever) {
  EXPECT_TRUE(Deadline(absl::ZeroDuration()).Passed());
  EXPECT_TRUE(Deadline(-absl::Seconds(1)).Passed());
  EXPECT_FALSE(Deadline(absl::Hours(1)).Passed());
  EXPECT_FALSE(Deadline(absl::InfiniteDuration()).Passed());
  EXPECT_EQ(Deadline(absl::InfiniteDuration()).Left(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace hadal
