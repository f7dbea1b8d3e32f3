#include "tests/gpu/held_streams.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace hadal::testing {
namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CountHeldStreams: %s\n", cudaGetErrorString(error));
  std::abort();
}

__global__ void WaitFor(const volatile int* open) {
  while (*open == 0) __nanosleep(1000);
}
__global__ void Touch() {}

class Streams {
 public:
  explicit Streams(int streams) : streams_(streams), done_(streams) {
    int least = 0, greatest = 0;
    Check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int i = 0; i < streams; ++i) {
      Check(cudaStreamCreateWithPriority(&streams_[i], cudaStreamNonBlocking, i % 3 == 0 ? greatest : least));
      Check(cudaEventCreateWithFlags(&done_[i], cudaEventDisableTiming));
    }
    Check(cudaEventCreateWithFlags(&behind_, cudaEventDisableTiming));
    Check(cudaHostAlloc(&open_, sizeof(int), cudaHostAllocMapped));
    Check(cudaHostGetDevicePointer(&device_open_, open_, 0));
    Open(1);
    // Loads both kernels: a first launch may wait for the whole device.
    for (cudaStream_t stream : streams_) {
      WaitFor<<<1, 1, 0, stream>>>(device_open_);
      Touch<<<1, 1, 0, stream>>>();
    }
    Check(cudaDeviceSynchronize());
  }
  ~Streams() {
    for (cudaStream_t stream : streams_) Check(cudaStreamDestroy(stream));
    for (cudaEvent_t event : done_) Check(cudaEventDestroy(event));
    Check(cudaEventDestroy(behind_));
    Check(cudaFreeHost(open_));
  }

  int HeldBehind(int blocked) {
    const int next = (blocked + 1) % static_cast<int>(streams_.size());
    Open(0);
    WaitFor<<<1, 1, 0, streams_[blocked]>>>(device_open_);
    Check(cudaEventRecord(behind_, streams_[blocked]));
    Check(cudaStreamWaitEvent(streams_[next], behind_, 0));
    std::vector<int> others;
    for (int i = 0; i < static_cast<int>(streams_.size()); ++i) {
      if (i != blocked && i != next) others.push_back(i);
    }
    for (int i : others) {
      Touch<<<1, 1, 0, streams_[i]>>>();
      Check(cudaEventRecord(done_[i], streams_[i]));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto held = std::count_if(others.begin(), others.end(),
                                    [this](int i) { return cudaEventQuery(done_[i]) == cudaErrorNotReady; });
    Open(1);
    Check(cudaDeviceSynchronize());
    return static_cast<int>(held);
  }

 private:
  void Open(int value) { *static_cast<volatile int*>(open_) = value; }

  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> done_;
  cudaEvent_t behind_ = nullptr;
  int *open_ = nullptr, *device_open_ = nullptr;
};

}  // namespace

HeldStreams CountHeldStreams(int streams) {
  Streams made(streams);
  HeldStreams held;
  int total = 0;
  for (int i = 0; i < streams; ++i) {
    const int behind = made.HeldBehind(i);
    total += behind;
    held.most = std::max(held.most, behind);
  }
  held.average = static_cast<double>(total) / streams;
  return held;
}

}  // namespace hadal::testing
