// A Stream says where a kernel runs: on a number of CPU threads, or on a device (device.h).
//
// With the copies of a Stream the same code reaches the kernels' memory on both. On the CPU they are memcpy and memset.
// On a device the host's threads do the work on the host.
// Numerics: the number of threads never changes a bit of any kernel's result, because threads split output rows, and
// sums over rows run in fixed blocks that are merged in ascending order.
// Thread safety: a Stream is a plain value. Two threads may launch on equal streams at the same time, because each OS
// thread has a team of its own (thread_team.h); tests with ranks as threads need that.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/thread_team.h"

namespace hadal {

class Stream {
 public:
  // A stream that runs each kernel on `threads` CPU threads.  REQUIRES: threads ≥ 1.
  static Stream Cpu(int threads) { return Stream(threads, nullptr, DeviceKind::kCpu); }
  // The main order of `device`, which must outlive the stream.
  static Stream On(Device& device, int host_threads) { return Stream(host_threads, &device, DeviceKind::kCuda); }
  // The same device, beside its main order: for operations whose headers allow it. REQUIRES: on a device; the queue is
  // from its queues(). Copies, Clear and Synchronize are for the main order only.
  Stream Beside(DeviceQueues::Queue queue) const {
    HADAL_CHECK(device_ != nullptr);
    Stream beside = *this;
    beside.queue_ = queue;
    return beside;
  }
  // A stream of `kind` without a device, for computing layouts. No kernel may run on it.
  static Stream ForLayouts(DeviceKind kind, int host_threads) { return Stream(host_threads, nullptr, kind); }

  int threads() const { return threads_; }
  // Null: the CPU.
  Device* device() const { return device_; }
  DeviceKind kind() const { return kind_; }
  DeviceQueues::Queue queue() const { return queue_; }

  // Copies between places that this stream's kernels may access, and between these and the host. ToHost and FromHost
  // return when the host's memory may be read or reused; Copy and Clear are put in order with the kernels. `bytes` may
  // be 0.
  void Copy(void* to, const void* from, int64_t bytes) const;
  void Clear(void* memory, int64_t bytes) const;
  void ToHost(void* to, const void* from, int64_t bytes) const;
  void FromHost(void* to, const void* from, int64_t bytes) const;
  // Waits until the stream's kernels and copies are done; on the CPU they always are.
  void Synchronize() const {
    HADAL_CHECK(queue_ == DeviceQueues::kMain);
    if (device_ != nullptr) device_->Synchronize();
  }

  // Runs body(thread) once for each thread in [0, threads()) and returns when all have ended. Libraries called inside
  // run serially (on the calling thread only after PrepareComputeThread()). Not to be nested. Blocking.
  template <typename Body>
  void Run(Body&& body) const {
    if (threads_ == 1) {
      body(0);
      return;
    }
    ThreadTeam::OfThisThread().Run(threads_, body);
  }

  // Splits [0, items) into one contiguous range a thread, and runs body(begin, end) for each. Every range but the last
  // is a multiple of `grain`, and none is smaller than `grain` (if items < grain thread 0 has all). Blocking.
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

  // The range that ForRanges gives to `thread`.
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

}  // namespace hadal
