// A Stream is where a kernel runs: a number of CPU threads, or a queue of a device (device.h).
//
// Its copies reach the memory of the kernels on the CPU (memcpy, memset) and on a device alike. On a device `threads`
// is the number of host threads for work on the host.
// Numerics: the number of threads does not change any bit of a kernel's result: threads split output rows, and sums
// over rows use fixed blocks that are merged in ascending order.
// Thread safety: a plain value. Two threads may launch on equal streams at the same time, because each thread has its
// own team (thread_team.h); tests that run ranks as threads rely on it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/tensor.h"
#include "runtime/thread_team.h"

namespace hadal {

class Stream {
 public:
  // A stream that runs each kernel on `threads` CPU threads. REQUIRES: threads ≥ 1.
  static Stream Cpu(int threads) { return Stream(threads, nullptr, DeviceKind::kCpu); }
  // The main queue of `device`, which must outlive the stream.
  static Stream On(Device& device, int host_threads) { return Stream(host_threads, &device, DeviceKind::kCuda); }
  // Another queue of the same device, for operations whose headers allow it. REQUIRES: on a device; the queue is from
  // its queues(). Copies, Clear and Synchronize need the main queue.
  Stream Beside(DeviceQueues::Queue queue) const {
    HADAL_CHECK(device_ != nullptr);
    Stream beside = *this;
    beside.queue_ = queue;
    return beside;
  }
  // A stream of `kind` without a device, for computing layouts. Must not run a kernel.
  static Stream ForLayouts(DeviceKind kind, int host_threads) { return Stream(host_threads, nullptr, kind); }

  int threads() const { return threads_; }
  // Null: the CPU.
  Device* device() const { return device_; }
  DeviceKind kind() const { return kind_; }
  DeviceQueues::Queue queue() const { return queue_; }

  // Copies between addresses that this stream's kernels can access, and between these and the host. ToHost and FromHost
  // return when the host memory may be read or reused; Copy and Clear are enqueued. `bytes` may be 0.
  void Copy(void* to, const void* from, int64_t bytes) const;
  void Clear(void* memory, int64_t bytes) const;
  void ToHost(void* to, const void* from, int64_t bytes) const;
  void FromHost(void* to, const void* from, int64_t bytes) const;
  // As ToHost, but only enqueues, on a device: the bytes are there when an event that was recorded on the main queue
  // afterwards is reached.  REQUIRES: on a device, `to` is from its AllocateHost.
  void EnqueueToHost(void* to, const void* from, int64_t bytes) const;
  // Waits until the stream's kernels and copies are done. Returns at once on the CPU.
  void Synchronize() const {
    HADAL_CHECK(queue_ == DeviceQueues::kMain);
    if (device_ != nullptr) device_->Synchronize();
  }

  // Runs body(thread) for each thread in [0, threads()) and returns when all have ended. Libraries called inside run
  // serially (on the calling thread only after PrepareComputeThread()). Must not be nested. Blocking.
  template <typename Body>
  void Run(Body&& body) const {
    if (threads_ == 1) {
      body(0);
      return;
    }
    ThreadTeam::OfThisThread().Run(threads_, body);
  }

  // Splits [0, items) into one contiguous range per thread and runs body(begin, end) for each. Every range but the last
  // is a multiple of `grain`; none is smaller than `grain` (if items < grain, thread 0 has all). Blocking.
  template <typename Body>
  void ForRanges(int64_t items, int64_t grain, Body&& body) const {
    if (items <= 0) return;
    if (threads_ == 1 || items < 2 * grain) {
      body(int64_t{0}, items);
      return;
    }
    Run([&](int thread) {
      const auto [begin, end] = Range(items, grain, thread);
      if (begin < end) body(begin, end);
    });
  }

  // The range of `thread` in ForRanges.
  std::pair<int64_t, int64_t> Range(int64_t items, int64_t grain, int thread) const {
    const int64_t blocks = items / grain;  // the remainder joins the last block
    if (blocks == 0) return thread == 0 ? std::pair(int64_t{0}, items) : std::pair(items, items);
    const int64_t begin = blocks * thread / threads_ * grain;
    const int64_t last = blocks * (thread + 1) / threads_;
    return {begin, last == blocks ? items : last * grain};
  }

 private:
  Stream(int threads, Device* device, DeviceKind kind) : threads_(threads), device_(device), kind_(kind) {
    HADAL_CHECK_GE(threads, 1);
  }

  int threads_;
  Device* device_;
  DeviceKind kind_;
  DeviceQueues::Queue queue_ = DeviceQueues::kMain;
};

// Returns a tensor's values as floats in host memory: for code that inspects a run, not for kernels.
// Waits for the stream. REQUIRES: contiguous.
std::vector<float> HostValues(const Stream& stream, const ConstAnyMatrix& matrix);

}  // namespace hadal
