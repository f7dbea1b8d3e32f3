// Who may use a device's stream while it records (runtime/device.h): the capturing thread launches, everybody else waits for the end.
//
// A copy that another thread makes meanwhile (a checkpoint being written) would be recorded, or spoil the recording.
// Thread safety: Begin, End and active belong to the device's one thread; Outside may be called by any.
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
  // Whether the calling thread records.
  bool active() const { return thread_.load() == std::this_thread::get_id(); }
  // Held around what must not be recorded. Aborts on the thread that records.
  [[nodiscard]] std::unique_lock<std::mutex> Outside() {
    HADAL_CHECK(!active());
    return std::unique_lock(mutex_);
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> thread_;
};

}  // namespace hadal::cuda
