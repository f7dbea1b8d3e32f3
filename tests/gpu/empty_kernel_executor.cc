#include "kernels/cuda/executor.h"
#include "tests/gpu/empty_kernel.h"

namespace hadal::testing {

cudaError_t LaunchEmptyKernel(cudaStream_t stream, int64_t blocks_x, int64_t blocks_y, int threads) {
  cuda::Executor::Of(stream).Run({blocks_x, blocks_y, threads}, [] {});
  return cudaGetLastError();
}

}  // namespace hadal::testing
