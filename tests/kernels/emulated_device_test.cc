#include "tests/support/emulated_device.h"

#include <algorithm>

#include "gmock/gmock.h"
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

TEST_F(EmulatedDeviceTest, WhatACaptureForbidsAborts) {
  std::vector<float> host(10);
  device_.BeginCapture();
  EXPECT_DEATH(stream_.ToHost(host.data(), values_.data, 40), "capturing");
  EXPECT_DEATH(stream_.FromHost(values_.data, host.data(), 40), "capturing");
  EXPECT_DEATH(device_.EnqueueCopyIn(values_.data, host_.data, 40), "capturing");
  EXPECT_DEATH(stream_.Synchronize(), "capturing");
  EXPECT_DEATH(device_.Idle(), "capturing");
  EXPECT_DEATH(static_cast<void>(device_.Allocate(16)), "capturing");
  EXPECT_DEATH(device_.BeginCapture(), "capturer");
  EXPECT_DEATH(device_.launch_memory().Put(1.0f), "capturing") << "content without a place of its own";
  ASSERT_TRUE(device_.EndCapture().ok());
  EXPECT_DEATH(static_cast<void>(device_.EndCapture()), "capturer");
  EmulatedDevice other;
  other.BeginCapture();
  const absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = other.EndCapture();
  EXPECT_DEATH(device_.Launch(**graph), "device");
}

}  // namespace
}  // namespace hadal::testing
