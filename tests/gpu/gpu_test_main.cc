// The main function of tests that need a GPU: without one, says why and exits with 77, which CTest counts as skipped.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);  // as a run over NCCL needs it; CUDA reads it once
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device (%s)\n", error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    std::printf("Device: %s, sm_%d%d\n", properties.name, properties.major, properties.minor);
  }
  const int result = RUN_ALL_TESTS();
  // What is left on the device now has leaked: compute-sanitizer's leak check looks here.
  return cudaDeviceReset() == cudaSuccess ? result : 1;
}
