// Records which kernels have been launched on a device. CUDA loads a kernel at its first launch (CUDA_MODULE_LOADING
// is LAZY by default). Loading may enlarge the stack and wait for all of the device's work: a standstill (device.h).
// Threads: only the thread that makes the device's calls.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <utility>

namespace hadal::cuda {

class FirstLaunches {
 public:
  // `before` is called before each first launch. It must end all work that must not be in progress in a standstill.
  explicit FirstLaunches(std::function<void()> before) : before_(std::move(before)) {}

  // Must be called before a launch of `kernel`, the address of the kernel's host function.
  void Note(uintptr_t kernel) {
    if (kernels_.insert(kernel).second) before_();
  }
  // Must be called before a library call that may load kernels, such as the first product of a shape.
  void NoteNew() { before_(); }

 private:
  std::function<void()> before_;
  std::unordered_set<uintptr_t> kernels_;
};

}  // namespace hadal::cuda
