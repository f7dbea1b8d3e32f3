#include "runtime/device_watch.h"

#include <atomic>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

constexpr absl::Duration kTimeout = absl::Milliseconds(400);

class DeviceWatchTest : public ::testing::Test {
 protected:
  std::atomic<bool> hung_ = false;
  DeviceWatch watch_{{.timeout = kTimeout, .hung = [this](const std::string&) { hung_ = true; }}};
};

TEST_F(DeviceWatchTest, AThreadThatHasWaitedMayDoAnythingElseForLong) {
  watch_.BeforeCall();
  { const DeviceWatch::Wait wait(watch_, "a wait"); }
  absl::SleepFor(3 * kTimeout);
  EXPECT_FALSE(hung_);
}

TEST_F(DeviceWatchTest, ManyShortWaitsAreNotALongOne) {
  for (int i = 0; i < 30; ++i) {
    const DeviceWatch::Wait wait(watch_, "a wait");
    absl::SleepFor(kTimeout / 20);
  }
  EXPECT_FALSE(hung_);
}

// Copies for a checkpoint end; the thread that launches may be stuck all the same.
TEST_F(DeviceWatchTest, TheWaitsOfAnotherThreadDoNotShowThatTheDevicesIsWell) {
  watch_.BeforeCall();
  std::thread([this] { const DeviceWatch::Wait wait(watch_, "a wait"); }).join();
  absl::SleepFor(3 * kTimeout);
  EXPECT_TRUE(hung_);
}

}  // namespace
}  // namespace hadal
