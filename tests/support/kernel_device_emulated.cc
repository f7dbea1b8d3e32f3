#include <cstring>

#include "tests/support/kernel_device.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::testing {

struct KernelDevice::State {
  explicit State(uint64_t seed) : emulator(seed) {}
  cuda::KernelEmulator emulator;
};

KernelDevice::KernelDevice(uint64_t seed) : state_(std::make_unique<State>(seed)) {}
KernelDevice::~KernelDevice() = default;
cuda::StreamHandle KernelDevice::stream() { return state_->emulator.stream(); }
void* KernelDevice::Allocate(int64_t bytes) { return state_->emulator.Allocate(bytes); }
void KernelDevice::Write(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void KernelDevice::Read(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace hadal::testing
