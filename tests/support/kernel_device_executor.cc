#include <cstring>

#include "kernels/cuda/executor.h"
#include "tests/support/kernel_device.h"

namespace hadal::testing {

struct KernelDevice::State {
  explicit State(uint64_t seed) : executor(seed) {}
  cuda::Executor executor;
};

KernelDevice::KernelDevice(uint64_t seed) : state_(std::make_unique<State>(seed)) {}
KernelDevice::~KernelDevice() = default;
cuda::StreamHandle KernelDevice::stream() { return state_->executor.stream(); }
void* KernelDevice::Allocate(int64_t bytes) { return state_->executor.Allocate(bytes); }
void KernelDevice::Write(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void KernelDevice::Read(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace hadal::testing
