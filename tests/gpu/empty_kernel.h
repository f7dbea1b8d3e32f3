// A kernel that does nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace hadal::testing {

// Launches it. Returns the launch's error.
cudaError_t LaunchEmptyKernel(cudaStream_t stream, int64_t blocks_x, int64_t blocks_y, int threads);

}  // namespace hadal::testing
