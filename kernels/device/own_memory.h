// What a device takes beside the arena of a run, for its whole life: cuBLASLt's workspace and what launches need (launch_memory.h).
//
// CudaDevice allocates exactly this when it is opened, so that `hadal plan --device cuda` can count it on a machine without a GPU. What the
// driver, cuBLASLt and NCCL take for themselves is not in it.
#pragma once

#include <cstdint>

#include "kernels/device/cublas_matmul.h"
#include "kernels/device/launch_memory.h"

namespace hadal::cuda {

struct OwnMemory {
  static constexpr int64_t kWorkspaceBytes = kMatmulWorkspaceBytes;
  static constexpr int64_t kLaunchBytes = 2 * LaunchMemory::kHalfBytes;  // as much again on the host, pinned
  static constexpr int64_t kScratchBytes = LaunchMemory::kScratchBytes;
  static constexpr int64_t kDeviceBytes = kWorkspaceBytes + kLaunchBytes + kScratchBytes;
  static constexpr int64_t kHostBytes = kLaunchBytes;
};

}  // namespace hadal::cuda
