// A GPU as a Device. A build without CUDA has the same function, which then says so (no_cuda_device.cc).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/cuda_facts.h"
#include "runtime/device.h"

namespace hadal::cuda {

struct CudaDeviceOptions {
  int local_rank = 0;  // of the process on its host; visible_device.h says which GPU it takes
  bool tf32 = false;   // products in tf32: ten bits of mantissa, several times faster
};

// Errors: NotFound where there is no driver or no GPU, or no CUDA in this build; Unavailable where there is one that cannot be used (a driver
// older than this CUDA, a GPU older than compute capability 8.0, no cuBLASLt), with what to try; ResourceExhausted. Blocking: a second or two.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

// What is known of the GPU that OpenCudaDevice would take, or refuse as too old.
// Errors: those of OpenCudaDevice that come before a GPU is chosen. Blocking.
absl::StatusOr<CudaFacts> LookAtCudaDevice(const CudaDeviceOptions& options);

}  // namespace hadal::cuda
