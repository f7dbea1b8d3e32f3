// A Stream says where a kernel runs: on a number of CPU threads, or on a queue of a device (device.h).
//
// Its copies work on the CPU (memcpy, memset) and on a device alike. On a device `threads` is the number of host
// threads for work that runs on the host.
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
  // The same stream on another queue of the device, for kernels whose headers allow it. The result's Copy, Clear,
  // ToHost, FromHost and Synchronize must not be called. REQUIRES: on a device; the queue is from its queues().
  Stream Beside(DeviceQueues::Queue queue) const {
    HADAL_CHECK(device_ != nullptr);
    Stream beside = *this;
    beside.queue_ = queue;
    return beside;
  }
  // A stream of `kind` without a device, for computing arena layouts (arena.h). Must not run a kernel.
  static Stream ForLayouts(DeviceKind kind, int host_threads) { return Stream(host_threads, nullptr, kind); }

  int threads() const { return threads_; }
  // Null: the CPU.
  Device* device() const { return device_; }
  DeviceKind kind() const { return kind_; }
  DeviceQueues::Queue queue() const { return queue_; }

  // Kernel memory is the memory that kernels access: the device's, or on the CPU the process's. Copy is between two
  // addresses in it, Clear sets bytes of it to 0. ToHost and FromHost are between kernel memory and the host's, and
  // return when the host memory may be read or reused. On a device Copy and Clear are only enqueued. `bytes` may be 0.
  void Copy(void* to, const void* from, int64_t bytes) const;
  void Clear(void* memory, int64_t bytes) const;
  void ToHost(void* to, const void* from, int64_t bytes) const;
  void FromHost(void* to, const void* from, int64_t bytes) const;
  // As ToHost on the CPU. On a device it only enqueues: the bytes are there when an event that was recorded on the main
  // queue afterwards is reached; `to` must be from the device's AllocateHost.
  void EnqueueToHost(void* to, const void* from, int64_t bytes) const;
  // Waits until the stream's kernels and copies are done. Returns at once on the CPU.
  void Synchronize() const {
    HADAL_CHECK(queue_ == DeviceQueues::kMain);
    if (device_ != nullptr) device_->Synchronize();
  }

  // Runs body(thread) on the host for each thread in [0, threads()) and returns when all have ended. Must not be
  // nested.
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

// Returns a matrix's values as floats in host memory, row by row: for code that inspects a run, not for kernels.
// Waits for the stream. REQUIRES: contiguous.
std::vector<float> HostValues(const Stream& stream, const ConstAnyMatrix& matrix);

}  // namespace hadal
