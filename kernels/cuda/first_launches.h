// Which kernels have been launched on a device. CUDA loads a kernel at its first launch (CUDA_MODULE_LOADING is LAZY by
// default). It may then need a larger stack, and may wait for all of the device's work: a standstill
// (runtime/device.h).
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

  // Call this before a launch of `kernel`, the address of the kernel's function on the host.
  void Note(uintptr_t kernel) {
    if (kernels_.insert(kernel).second) before_();
  }
  // Call this before a launch that a library knows to be a first one.
  void NoteNew() { before_(); }

 private:
  std::function<void()> before_;
  std::unordered_set<uintptr_t> kernels_;
};

}  // namespace hadal::cuda
