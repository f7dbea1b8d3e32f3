// Which kernels have been launched on a device: CUDA loads a kernel when it is launched first (CUDA_MODULE_LOADING is LAZY by default), may
// then need a larger stack for it, and may wait for all of the device's work to do so (runtime/device.h: a standstill).
// Threads: the device's one.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <utility>

namespace hadal::cuda {

class FirstLaunches {
 public:
  // `before`: called before each first launch.
  explicit FirstLaunches(std::function<void()> before) : before_(std::move(before)) {}

  // `kernel`, the address of its function on the host, is about to be launched.
  void Note(uintptr_t kernel) {
    if (kernels_.insert(kernel).second) before_();
  }
  // Something is about to be launched of which its library knows that it is new.
  void NoteNew() { before_(); }

 private:
  std::function<void()> before_;
  std::unordered_set<uintptr_t> kernels_;
};

}  // namespace hadal::cuda
