// Keeps other threads off a device's stream during a capture (runtime/device.h). The capturing thread launches; all
// others wait until the capture ends. Otherwise another thread's copy (a checkpoint being written) would be recorded or
// would invalidate the capture.
//
// Thread safety: the device's one thread calls Begin, End and active; any thread may call Outside.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "runtime/check.h"

namespace hadal::cuda {

class CaptureGuard {
 public:
  void Begin() {
    HADAL_CHECK(!active());
    mutex_.lock();
    thread_ = std::this_thread::get_id();
  }
  void End() {
    HADAL_CHECK(active());
    thread_ = std::thread::id();
    mutex_.unlock();
  }
  // Whether the calling thread is capturing.
  bool active() const { return thread_.load() == std::this_thread::get_id(); }
  // Returns a lock to hold during work that must not be recorded. Aborts on the capturing thread.
  [[nodiscard]] std::unique_lock<std::mutex> Outside() {
    HADAL_CHECK(!active());
    return std::unique_lock(mutex_);
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> thread_;
};

}  // namespace hadal::cuda
