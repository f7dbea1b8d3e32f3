// What only a GPU can answer. Each test prints lines "fact: …", which tests/gpu/first_minutes copies to its results.
#include <sys/resource.h>

#include <cstdio>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/add.h"
#include "kernels/cuda_host/held_streams.h"
#include "runtime/arena.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

// What the order of transfers rests on (runtime/comm/nccl_communicator.md).
TEST(GpuStreamQueuesTest, AsManyStreamsAsARankHasHoldNoOther) {
  for (const int streams : {24, 32, 62}) {
    const absl::StatusOr<cuda::HeldStreams> held = cuda::CountHeldStreams(streams);
    ASSERT_TRUE(held.ok()) << held.status();
    std::printf("fact: %d streams: behind a waiting one %.2f others wait on average, at most %d\n", streams,
                held->average, held->most);
    if (streams == 24) {
      EXPECT_EQ(held->most, 0);
    }
  }
  const absl::StatusOr<cuda::HeldStreams> held = cuda::CountHeldStreams(24, /*discarded=*/1);
  ASSERT_TRUE(held.ok()) << held.status();
  std::printf("fact: 24 streams among others that were destroyed: %.2f wait on average, at most %d\n", held->average,
              held->most);
}

int64_t PeakHostBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

TEST(GpuGraphFactsTest, TimeAndBytesOfALaunch) {
  constexpr int kLaunches = 20'000, kGraphs = 4;
  const std::unique_ptr<Device> device = MakeTestDevice(1);
  const Stream stream = Stream::On(*device, 1);
  ArenaLayout layout;
  const ArenaSlice slice = layout.Reserve<float>("values", 1024);
  const Arena arena = *Arena::Allocate(layout, device.get());
  const Vector values = {arena.Get<float>(slice), 1024};
  Add(stream, {.sum = values, .values = values});  // the kernel's first launch loads it
  device->Synchronize();

  const int64_t free_bytes = device->FreeBytes(), host_bytes = PeakHostBytes();
  absl::Duration capture, instantiate, first, second;
  std::unique_ptr<DeviceGraph> graphs[kGraphs];
  for (std::unique_ptr<DeviceGraph>& graph : graphs) {
    const absl::Time begin = absl::Now();
    device->BeginCapture();
    for (int i = 0; i < kLaunches; ++i) Add(stream, {.sum = values, .values = values});
    const absl::Time captured = absl::Now();
    graph = device->EndCapture().value();
    const absl::Time made = absl::Now();
    device->Launch(*graph);
    device->Synchronize();
    const absl::Time launched = absl::Now();
    device->Launch(*graph);
    device->Synchronize();
    capture += captured - begin, instantiate += made - captured, first += launched - made;
    second += absl::Now() - launched;
  }
  const auto nanoseconds = [](absl::Duration all) { return absl::ToDoubleNanoseconds(all) / (kLaunches * kGraphs); };
  std::printf(
      "fact: a graph's launch takes %.0f ns to capture, %.0f to instantiate, %.0f in the first run, %.0f later\n",
      nanoseconds(capture), nanoseconds(instantiate), nanoseconds(first), nanoseconds(second));
  std::printf("fact: a graph's launch takes %.0f bytes of the device and %.0f of the host\n",
              static_cast<double>(free_bytes - device->FreeBytes()) / (kLaunches * kGraphs),
              static_cast<double>(PeakHostBytes() - host_bytes) / (kLaunches * kGraphs));
}

}  // namespace
}  // namespace hadal::testing
