// The memory that hadal itself allocates on a device outside of the arena, for the whole run: cuBLASLt's workspace
// and memory for launches (launch_memory.h).
//
// CudaDevice allocates exactly this when it is opened, so `hadal plan --device cuda` can count it without a GPU.
// driver_memory.h has the memory that the driver, cuBLASLt and NCCL allocate themselves.
#pragma once

#include <cstdint>

#include "kernels/cuda_host/cublas_matmul.h"
#include "kernels/cuda_host/launch_memory.h"

namespace hadal::cuda {

struct OwnMemory {
  static constexpr int64_t kWorkspaceBytes = kMatmulWorkspaceBytes;
  static constexpr int64_t kLaunchBytes = 2 * LaunchMemory::kHalfBytes;  // and as many bytes of pinned host memory
  static constexpr int64_t kScratchBytes = LaunchMemory::kScratchBytes;
  static constexpr int64_t kDeviceBytes = kWorkspaceBytes + kLaunchBytes + kScratchBytes;
  static constexpr int64_t kHostBytes = kLaunchBytes;
};

}  // namespace hadal::cuda
