// A GPU as a Device. A build without CUDA has the same function, which then says so (no_cuda_device.cc).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace hadal::cuda {

struct CudaDeviceOptions {
  int local_rank = 0;  // of the process on its host; visible_device.h says which GPU it takes
  bool tf32 = false;   // products in tf32: ten bits of mantissa, several times faster
};

// Errors: Unavailable where there is no driver, no GPU, or none that these kernels run on (compute capability 8.0), or no cuBLASLt, with
// what to try; ResourceExhausted. Blocking: a second or two.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

}  // namespace hadal::cuda
