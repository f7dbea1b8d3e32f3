// What a device takes outside of a run's arena, for the whole run: cuBLASLt's workspace and memory for launches
// (launch_memory.h).
//
// CudaDevice allocates exactly this when it is opened, so `hadal plan --device cuda` can count it on a machine without
// a GPU. Memory that the driver, cuBLASLt and NCCL take for themselves is in driver_memory.h.
#pragma once

#include <cstdint>

#include "kernels/cuda_host/cublas_matmul.h"
#include "kernels/cuda_host/launch_memory.h"

namespace hadal::cuda {

struct OwnMemory {
  static constexpr int64_t kWorkspaceBytes = kMatmulWorkspaceBytes;
  static constexpr int64_t kLaunchBytes = 2 * LaunchMemory::kHalfBytes;  // as much again on the host, pinned
  static constexpr int64_t kScratchBytes = LaunchMemory::kScratchBytes;
  static constexpr int64_t kDeviceBytes = kWorkspaceBytes + kLaunchBytes + kScratchBytes;
  static constexpr int64_t kHostBytes = kLaunchBytes;
};

}  // namespace hadal::cuda
