#include "runtime/clock.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(Deadline, PassesWhenItsTimeIsOver) {
  const Deadline far(absl::Minutes(1)), near(absl::Milliseconds(5));
  EXPECT_FALSE(far.Passed());
  EXPECT_GT(far.Left(), absl::ZeroDuration());
  EXPECT_LE(far.Left(), absl::Minutes(1));
  absl::SleepFor(absl::Milliseconds(6));
  EXPECT_TRUE(near.Passed());
  EXPECT_LT(near.Left(), absl::ZeroDuration());
  EXPECT_LE(far.Left(), absl::Minutes(1) - absl::Milliseconds(6));
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
