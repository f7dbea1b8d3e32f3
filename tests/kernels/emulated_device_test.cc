#include "tests/support/emulated_device.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/add.h"
#include "kernels/linear.h"
#include "runtime/arena.h"

namespace hadal::testing {
namespace {

// Ten floats on a device.
class EmulatedDeviceTest : public ::testing::Test {
 protected:
  EmulatedDeviceTest() {
    ArenaLayout layout;
    const ArenaSlice on_device = layout.Reserve<float>("a", 10);
    const ArenaSlice on_host = layout.ReserveHostBytes("b", 40);
    arena_ = *Arena::Allocate(layout, &device_);
    values_ = {arena_.Get<float>(on_device), 10};
    host_ = {arena_.Get<float>(on_host), 10};
  }

  EmulatedDevice device_;
  Stream stream_ = Stream::On(device_, 1);
  Arena arena_;
  Vector values_, host_;
};

TEST_F(EmulatedDeviceTest, CopiesGoInAndOut) {
  const std::vector<float> in = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<float> out(10);
  stream_.ToHost(out.data(), values_.data, 40);
  EXPECT_EQ(out, std::vector<float>(10));  // an arena is zero
  stream_.FromHost(values_.data, in.data(), 40);
  stream_.Copy(values_.data + 5, values_.data, 20);
  stream_.Clear(values_.data, 4);
  stream_.ToHost(out.data(), values_.data, 40);
  EXPECT_EQ(out, (std::vector<float>{0, 2, 3, 4, 5, 1, 2, 3, 4, 5}));
  host_[3] = 1;  // the arena's host part is the host's
}

TEST_F(EmulatedDeviceTest, TheSidesAreApart) {
  std::vector<float> host(10);
  EXPECT_DEATH(values_[0] = 1, "");
  EXPECT_DEATH(std::copy_n(values_.data, 1, host.data()), "");
  EXPECT_DEATH(Add(stream_, {.sum = {host.data(), 10}, .values = values_}), "of an allocation|before every allocation");
  EXPECT_DEATH(stream_.Copy(host.data(), values_.data, 40), "Owns");
  EXPECT_DEATH(stream_.FromHost(values_.data + 5, host.data(), 48), "Owns");
  EXPECT_DEATH(
      LinearForward(stream_, {.x = {host.data(), 1, 2}, .weight = {values_.data, 2, 2}, .y = {values_.data, 1, 2}}),
      "Owns");
}

TEST_F(EmulatedDeviceTest, MemoryThatIsBeingCopiedStays) {
  device_.EnqueueCopyIn(values_.data, host_.data, 40);
  device_.Synchronize();
  host_[0] = 1;  // free again
  device_.EnqueueCopyIn(values_.data, host_.data, 40);
  EXPECT_DEATH(
      {
        host_[0] = 2;
        device_.Synchronize();
      },
      "checksum");
}

TEST_F(EmulatedDeviceTest, AnArenaTooLargeIsAnError) {
  EmulatedDevice small(1, 64 << 20);  // of which its workspace and launches take 41
  ArenaLayout layout;
  layout.Reserve<float>("a", 1 << 23);
  const absl::Status status = Arena::Allocate(layout, &small).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("33554432 bytes on the device"));
}

TEST_F(EmulatedDeviceTest, AGraphRunsWhatWasRecordedAsOftenAsItIsLaunched) {
  const std::vector<float> ones(10, 1.0f);
  std::vector<float> out(10);
  const int64_t before = device_.launches();
  device_.BeginCapture();
  Add(stream_, {.sum = values_, .values = values_});
  stream_.Copy(values_.data + 5, values_.data, 20);
  stream_.Clear(values_.data, 4);
  LinearForward(stream_,
                {.x = {values_.data + 1, 1, 2}, .weight = {values_.data + 3, 2, 2}, .y = {values_.data + 7, 1, 2}});
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device_.EndCapture();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)->launches(), 4);
  EXPECT_EQ(device_.launches(), before) << "nothing has run";
  for (int round = 0; round < 3; ++round) {
    stream_.FromHost(values_.data, ones.data(), 40);
    device_.Launch(**graph);
    stream_.ToHost(out.data(), values_.data, 40);
    EXPECT_EQ(out, (std::vector<float>{0, 2, 2, 2, 2, 2, 2, 8, 8, 2}));
  }
  EXPECT_EQ(device_.launches(), before + 3) << "a graph is one launch";
}

TEST_F(EmulatedDeviceTest, WhatACaptureForbidsAborts) {
  std::vector<float> host(10);
  device_.BeginCapture();
  EXPECT_DEATH(stream_.ToHost(host.data(), values_.data, 40), "active");
  EXPECT_DEATH(stream_.FromHost(values_.data, host.data(), 40), "capturing");
  EXPECT_DEATH(device_.EnqueueCopyIn(values_.data, host_.data, 40), "capturing");
  EXPECT_DEATH(stream_.Synchronize(), "capturing");
  EXPECT_DEATH(device_.Idle(), "capturing");
  EXPECT_DEATH(static_cast<void>(device_.Allocate(16)), "capturing");
  EXPECT_DEATH(device_.BeginCapture(), "active");
  EXPECT_DEATH(device_.launch_memory().Put(1.0f), "capturing") << "content without a place of its own";
  ASSERT_TRUE(device_.EndCapture().ok());
  EXPECT_DEATH(static_cast<void>(device_.EndCapture()), "active");
  EmulatedDevice other;
  other.BeginCapture();
  const absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = other.EndCapture();
  EXPECT_DEATH(device_.Launch(**graph), "device");
}

TEST_F(EmulatedDeviceTest, AnotherThreadsCopyWaitsForTheCapture) {
  std::vector<float> host(10);
  std::atomic<bool> copied = false;
  device_.BeginCapture();
  std::thread writer([&] {
    device_.CopyOut(host.data(), values_.data, 40);
    copied = true;
  });
  Add(stream_, {.sum = values_, .values = values_});
  EXPECT_FALSE(copied);
  ASSERT_TRUE(device_.EndCapture().ok());
  writer.join();
  EXPECT_TRUE(copied);
}

TEST_F(EmulatedDeviceTest, WhatLaunchesReadSurvivesTwoHalves) {
  // More content than a half of the launch memory holds, checked against what kernels see.
  const int64_t count = cuda::LaunchMemory::kHalfBytes / 4 / 3;
  std::vector<float> values(count), seen(count);
  cuda::LaunchMemory& memory = device_.launch_memory();
  const float* last = nullptr;
  for (int round = 0; round < 8; ++round) {
    std::fill(values.begin(), values.end(), static_cast<float>(round));
    const float* const now = memory.Put(values.data(), count).address;
    EXPECT_EQ(memory.Put(values.data(), count).address, now) << "the same content is copied once";
    stream_.ToHost(seen.data(), now, count * 4);
    EXPECT_EQ(seen, values);
    if (last != nullptr) {
      stream_.ToHost(seen.data(), last, count * 4);
      EXPECT_EQ(seen[0], round - 1) << "the content before is still there";
    }
    last = now;
  }
}

}  // namespace
}  // namespace hadal::testing
