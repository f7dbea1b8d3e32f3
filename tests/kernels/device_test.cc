// What runtime/device.h promises, on whatever device the program links: the emulated one, a GPU's over an emulated
// runtime, a GPU.
#include "runtime/device.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "kernels/add.h"
#include "kernels/cuda_host/launch_device.h"
#include "kernels/linear.h"
#include "runtime/arena.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

using Floats = std::vector<float>;

// Ten floats on a device, and ten where it copies fastest.
class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() {
    ArenaLayout layout;
    const ArenaSlice on_device = layout.Reserve<float>("a", 10);
    const ArenaSlice on_host = layout.ReserveHostBytes("b", 40);
    arena_ = *Arena::Allocate(layout, device_.get());
    values_ = {arena_.Get<float>(on_device), 10};
    host_ = {arena_.Get<float>(on_host), 10};
  }

  Floats Values() const {
    Floats values(10);
    stream_.ToHost(values.data(), values_.data, 40);
    return values;
  }
  void AddToItself() { Add(stream_, {.sum = values_, .values = values_}); }
  void Busy() {
    for (int i = 0; i < 20; ++i) AddToItself();
  }

  const std::unique_ptr<Device> device_ = MakeTestDevice(1);
  const Stream stream_ = Stream::On(*device_, 1);
  Arena arena_;
  Vector values_, host_;
};

TEST_F(DeviceTest, CopiesGoInAndOut) {
  const Floats in = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(Values(), Floats(10)) << "an arena is zero";
  stream_.FromHost(values_.data, in.data(), 40);
  stream_.Copy(values_.data + 5, values_.data, 20);
  stream_.Clear(values_.data, 4);
  EXPECT_EQ(Values(), (Floats{0, 2, 3, 4, 5, 1, 2, 3, 4, 5}));
}

TEST_F(DeviceTest, CopyInLetsItsSourceGo) {
  Floats pageable(10);
  for (float* const source : {pageable.data(), host_.data}) {
    std::fill_n(source, 10, 1.0f);
    Busy();
    device_->CopyIn(values_.data, source, 40);
    std::fill_n(source, 10, 2.0f);
    EXPECT_EQ(Values(), Floats(10, 1.0f));
  }
}

TEST_F(DeviceTest, EnqueuedCopiesKeepTheirPlace) {
  std::fill_n(host_.data, 10, 3.0f);
  Busy();
  device_->EnqueueCopyIn(values_.data, host_.data, 40);
  AddToItself();
  device_->Synchronize();
  host_[0] = 100;  // free again
  EXPECT_EQ(Values(), Floats(10, 6.0f));
}

TEST_F(DeviceTest, ItIsIdleSomeTimeAndTakesLaunchesMeanwhile) {
  std::fill_n(host_.data, 10, 1.0f);
  device_->CopyIn(values_.data, host_.data, 40);
  for (int i = 0; i < 10; ++i) {
    AddToItself();
    device_->Idle();  // not yet, mostly: no error of what is launched next
  }
  while (!device_->Idle()) std::this_thread::yield();
  AddToItself();
  EXPECT_EQ(Values(), Floats(10, 2048.0f));
}

TEST_F(DeviceTest, AGraphRunsWhatWasRecordedAsOftenAsItIsLaunched) {
  const Floats ones(10, 1.0f);
  const auto multiply = [this] {
    LinearForward(stream_,
                  {.x = {values_.data + 1, 1, 2}, .weight = {values_.data + 3, 2, 2}, .y = {values_.data + 7, 1, 2}});
  };
  multiply();  // a product's algorithm is chosen before anything is recorded
  stream_.Clear(values_.data, 40);
  device_->Synchronize();
  const int64_t before = device_->launches();
  device_->BeginCapture();
  AddToItself();
  stream_.Copy(values_.data + 5, values_.data, 20);
  stream_.Clear(values_.data, 4);
  multiply();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device_->EndCapture();
  EXPECT_EQ(device_->launches(), before) << "nothing has run";
  EXPECT_EQ(Values(), Floats(10)) << "nothing has run";
  for (int round = 0; round < 3; ++round) {
    stream_.FromHost(values_.data, ones.data(), 40);
    device_->Launch(**graph);
    EXPECT_EQ(Values(), (Floats{0, 2, 2, 2, 2, 2, 2, 8, 8, 2}));
  }
  EXPECT_EQ(device_->launches(), before + 3) << "a graph is one launch";
}

// As a checkpoint's thread copies what no kernel changes meanwhile.
TEST_F(DeviceTest, AnotherThreadsCopiesGoBesideLaunchesAndCaptures) {
  DeviceQueues& queues = device_->queues();
  const DeviceQueues::Queue queue = *queues.MakeQueue();
  const DeviceQueues::Event ready = *queues.MakeEvent(), done = *queues.MakeEvent();
  std::fill_n(host_.data, 10, 1.0f);
  device_->EnqueueCopyIn(values_.data, host_.data, 40);
  device_->Synchronize();
  queues.Record(ready, DeviceQueues::kMain);
  const Vector changing = {values_.data + 5, 5};
  Add(stream_, {.sum = changing, .values = changing});  // its first launch is a standstill
  std::atomic<int> copies = 0;
  device_->BeginCapture();
  std::thread writer([&] {
    for (; copies < 50; ++copies) {
      std::fill_n(host_.data, 5, 0.0f);
      queues.Await(queue, ready);
      device_->EnqueueCopyOut(queue, host_.data, values_.data, 20);
      queues.Record(done, queue);
      while (!queues.Reached(done)) std::this_thread::yield();
      EXPECT_EQ(Floats(host_.data, host_.data + 5), Floats(5, 1.0f));
    }
  });
  Add(stream_, {.sum = changing, .values = changing});
  while (copies < 3) std::this_thread::yield();
  ASSERT_TRUE(device_->EndCapture().ok());
  for (int i = 1; i < 100; ++i) Add(stream_, {.sum = changing, .values = changing});
  writer.join();
  EXPECT_EQ(Values(), (Floats{1, 1, 1, 1, 1, 0x1p100f, 0x1p100f, 0x1p100f, 0x1p100f, 0x1p100f}));
  queues.DestroyEvent(ready);
  queues.DestroyEvent(done);
  queues.DestroyQueue(queue);
}

TEST_F(DeviceTest, WhatMayLetItStandStillIsTold) {
  int told = 0, before = 0;
  const auto rose = [&] { return std::exchange(before, told) < told; };
  device_->OnStandstill([&] { ++told; });
  const auto multiply = [this](int64_t rows) {
    LinearForward(stream_,
                  {.x = {values_.data, rows, 1}, .weight = {values_.data + 4, 1, 1}, .y = {values_.data + 6, rows, 1}});
  };
  AddToItself();
  EXPECT_TRUE(rose()) << "a kernel's first launch";
  multiply(2);
  EXPECT_TRUE(rose()) << "a product's first launch";
  AddToItself();
  multiply(2);
  EXPECT_FALSE(rose()) << "its second";
  multiply(3);
  EXPECT_TRUE(rose()) << "another product";
  EXPECT_EQ(Values(), Floats(10));
  device_->CopyIn(values_.data, host_.data, 40);
  device_->EnqueueCopyIn(values_.data, host_.data, 40);
  device_->CopyWithin(values_.data, values_.data + 5, 20);
  device_->Clear(values_.data, 40);
  device_->Idle();
  device_->Synchronize();
  EXPECT_FALSE(rose()) << "what every step does";

  device_->BeginCapture();
  EXPECT_TRUE(rose()) << "a recording";
  AddToItself();
  multiply(2);
  const absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device_->EndCapture();
  EXPECT_FALSE(rose()) << "what is recorded, and the graph";
  device_->Launch(**graph);
  EXPECT_TRUE(rose()) << "a graph's first launch";
  device_->Launch(**graph);
  EXPECT_FALSE(rose());

  device_->FreeBytes();
  EXPECT_TRUE(rose());
  std::byte* const memory = *device_->Allocate(16);
  EXPECT_TRUE(rose());
  device_->Free(memory);
  EXPECT_TRUE(rose());
  std::byte* const pinned = *device_->AllocateHost(16);
  EXPECT_TRUE(rose());
  device_->FreeHost(pinned);
  EXPECT_TRUE(rose());
  DeviceQueues& queues = device_->queues();
  const DeviceQueues::Queue queue = *queues.MakeQueue();
  EXPECT_TRUE(rose()) << "a queue";
  const DeviceQueues::Event event = *queues.MakeEvent();
  EXPECT_TRUE(rose()) << "an event";
  queues.Record(event, DeviceQueues::kMain);
  queues.Await(queue, event);
  queues.Record(event, queue);
  while (!queues.Reached(event)) continue;
  EXPECT_FALSE(rose()) << "what transfers do";
  queues.DestroyEvent(event);
  queues.DestroyQueue(queue);
  device_->OnStandstill(nullptr);
}

TEST_F(DeviceTest, QueuesWaitForKernelsAndTheHostSeesWhen) {
  DeviceQueues& queues = device_->queues();
  const DeviceQueues::Queue queue = *queues.MakeQueue();
  const DeviceQueues::Event ready = *queues.MakeEvent(), done = *queues.MakeEvent();
  for (int round = 0; round < 5; ++round) {
    Busy();
    queues.Record(ready, DeviceQueues::kMain);
    queues.Await(queue, ready);
    queues.Record(done, queue);
    while (!queues.Reached(done)) AddToItself();  // launches are good while it is not
    EXPECT_TRUE(queues.Reached(ready)) << "the queue ran before the kernels that it waits for";
  }
  device_->Synchronize();
  queues.DestroyEvent(ready);
  queues.DestroyEvent(done);
  queues.DestroyQueue(queue);
}

TEST_F(DeviceTest, WhatLaunchesReadSurvivesTwoHalves) {
  // More content than a half of the launch memory holds, checked against what kernels see.
  const int64_t count = cuda::LaunchMemory::kHalfBytes / 4 / 3;
  Floats values(count), seen(count);
  cuda::LaunchMemory& memory = cuda::DeviceOf(stream_).launch_memory();
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

// Three launches that read three contents, with nobody waiting in between.
TEST_F(DeviceTest, WhatLaunchesReadIsThereWhenTheyRun) {
  const int64_t count = cuda::LaunchMemory::kHalfBytes / 4 / 3;
  cuda::LaunchMemory& memory = cuda::DeviceOf(stream_).launch_memory();
  for (int round = 0; round < 12; ++round) {
    const Floats values(count, 1.0f + static_cast<float>(round));
    float* const content = const_cast<float*>(memory.Put(values.data(), count).address);
    Add(stream_, {.sum = values_, .values = {content, 10}});
  }
  EXPECT_EQ(Values(), Floats(10, 78.0f));
}

}  // namespace
}  // namespace hadal::testing
