#include "runtime/device_watch.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

constexpr absl::Duration kTimeout = absl::Milliseconds(400);
constexpr absl::Duration kHang = absl::Seconds(60);

class DeviceWatchTest : public ::testing::Test {
 protected:
  std::string what_;  // read once it hangs
  std::atomic<bool> hung_ = false;
  DeviceWatch watch_{{.timeout = kTimeout, .hung = [this](const std::string& what) {
                        what_ = what;
                        hung_ = true;
                      }}};
};

TEST_F(DeviceWatchTest, AThreadThatHasWaitedMayDoAnythingElseForLong) {
  watch_.BeforeCall();
  { const DeviceWatch::Wait wait(watch_, "a wait"); }
  absl::SleepFor(3 * kTimeout);
  EXPECT_FALSE(hung_);
}

TEST_F(DeviceWatchTest, ManyShortWaitsAreNotALongOne) {
  double longest = 0;
  for (int i = 0; i < 30; ++i) {
    const Stopwatch lasted;
    {
      const DeviceWatch::Wait wait(watch_, "a wait");
      absl::SleepFor(kTimeout / 20);
    }
    longest = std::max(longest, lasted.Seconds());
  }
  EXPECT_TRUE(!hung_ || absl::Seconds(longest) > kTimeout) << longest;  // unless this machine is too busy
}

// Copies for a checkpoint end; the thread that launches may be stuck all the same.
TEST_F(DeviceWatchTest, TheWaitsOfAnotherThreadDoNotShowThatTheDevicesIsWell) {
  watch_.BeforeCall();
  std::thread([this] { const DeviceWatch::Wait wait(watch_, "a wait"); }).join();
  for (const Stopwatch watch; !hung_ && absl::Seconds(watch.Seconds()) < kHang;) absl::SleepFor(kTimeout / 20);
  ASSERT_TRUE(hung_);
  EXPECT_NE(what_.find("has not responded for 800ms: a call of its driver"), std::string::npos) << what_;
}

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
