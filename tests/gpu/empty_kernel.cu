#include "tests/gpu/empty_kernel.h"

namespace hadal::testing {
namespace {

__global__ void EmptyKernel() {}

}  // namespace

cudaError_t LaunchEmptyKernel(cudaStream_t stream, int64_t blocks_x, int64_t blocks_y, int threads) {
  const dim3 blocks(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y));
  EmptyKernel<<<blocks, static_cast<unsigned>(threads), 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace hadal::testing
