// A GPU as a Device. In a build without CUDA these functions return an error that says so (no_cuda_device.cc).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda_host/cuda_facts.h"
#include "runtime/device.h"
#include "runtime/device_watch.h"

namespace hadal::cuda {

struct CudaDeviceOptions {
  int local_rank = 0;          // the process's index on its host; visible_device.h maps it to a GPU
  bool tf32 = false;           // products of fp32 matrices in tf32: ten bits of mantissa
  DeviceWatch::Options watch;  // ends the process if the GPU hangs; all of the device's waits and calls are watched
};

// Opens the GPU. Errors: NotFound if there is no driver or no GPU, or if the build has no CUDA. Unavailable, with a
// remedy, for a GPU that cannot be used: a driver older than this CUDA, compute capability below 8.0, no cuBLASLt.
// ResourceExhausted if CUDA cannot allocate the memory of own_memory.h. Blocking: a second or two.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

// Returns facts about the GPU that OpenCudaDevice would choose, also if it would refuse it. Errors: NotFound and
// Unavailable, as OpenCudaDevice before it has chosen a GPU. Blocking.
absl::StatusOr<CudaFacts> LookAtCudaDevice(const CudaDeviceOptions& options);

}  // namespace hadal::cuda
