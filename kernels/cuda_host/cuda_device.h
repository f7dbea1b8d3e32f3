// A GPU as a Device. In a build without CUDA these functions return an error that says so (no_cuda_device.cc).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda_host/cuda_facts.h"
#include "runtime/device.h"

namespace hadal::cuda {

struct CudaDeviceOptions {
  int local_rank = 0;  // the process's number on its host; visible_device.h says which GPU that is
  bool tf32 = false;   // products in tf32: ten bits of mantissa, several times faster
};

// Errors: NotFound where there is no driver or no GPU, or where the build has no CUDA. Unavailable, with what to try,
// for a GPU that cannot be used: a driver older than this CUDA, compute capability below 8.0, no cuBLASLt.
// ResourceExhausted. Blocking: a second or two.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

// Facts about the GPU that OpenCudaDevice would take, or refuse as too old.
// Errors: those of OpenCudaDevice that come before a GPU is chosen. Blocking.
absl::StatusOr<CudaFacts> LookAtCudaDevice(const CudaDeviceOptions& options);

}  // namespace hadal::cuda
