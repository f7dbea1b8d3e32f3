#include "tests/gpu/empty_kernel.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::testing {

cudaError_t LaunchEmptyKernel(cudaStream_t stream, int64_t blocks_x, int64_t blocks_y, int threads) {
  cuda::KernelEmulator::Of(stream).Run({blocks_x, blocks_y, threads}, [] {});
  return cudaGetLastError();
}

}  // namespace hadal::testing
