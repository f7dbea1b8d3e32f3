#include <cuda_runtime_api.h>

#include "runtime/check.h"
#include "tests/support/kernel_device.h"

namespace hadal::testing {

struct KernelDevice::State {
  cudaStream_t stream = nullptr;
  std::vector<void*> allocations;
};

KernelDevice::KernelDevice(uint64_t /*seed*/) : state_(std::make_unique<State>()) {
  HADAL_CHECK_EQ(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking), cudaSuccess);
}

KernelDevice::~KernelDevice() {
  HADAL_CHECK_EQ(cudaStreamSynchronize(state_->stream), cudaSuccess);
  for (void* allocation : state_->allocations) HADAL_CHECK_EQ(cudaFree(allocation), cudaSuccess);
  HADAL_CHECK_EQ(cudaStreamDestroy(state_->stream), cudaSuccess);
}

cuda::StreamHandle KernelDevice::stream() { return state_->stream; }

void* KernelDevice::Allocate(int64_t bytes) {
  void* start = nullptr;
  HADAL_CHECK_EQ(cudaMalloc(&start, bytes > 0 ? bytes : 1), cudaSuccess);
  HADAL_CHECK_EQ(cudaMemsetAsync(start, 0xFF, bytes, state_->stream), cudaSuccess);
  state_->allocations.push_back(start);
  return start;
}

void KernelDevice::Write(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  HADAL_CHECK_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, state_->stream), cudaSuccess);
  HADAL_CHECK_EQ(cudaStreamSynchronize(state_->stream), cudaSuccess);  // `from` may go
}

void KernelDevice::Read(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) HADAL_CHECK_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, state_->stream), cudaSuccess);
  HADAL_CHECK_EQ(cudaStreamSynchronize(state_->stream), cudaSuccess);
}

}  // namespace hadal::testing
