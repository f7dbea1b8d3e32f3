#include "tests/gpu/nccl_test_main.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda_host/cuda_device.h"
#include "launch/task_launcher.h"

namespace hadal::testing {
namespace {

constexpr int kSkipped = 77;

NcclTestSurroundings& Here() {
  static NcclTestSurroundings here;
  return here;
}

int Skip(const std::string& why) {
  std::printf("SKIPPED: %s\n", why.c_str());
  return kSkipped;
}

// Before the first call of NCCL. What the user has set stays.
void LookLikeHosts(int rank) {
  setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), /*overwrite=*/0);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  setenv("NCCL_IB_DISABLE", "1", 0);
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

int RunTests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  std::unique_ptr<MpiEnvironment> environment;
  int rank = 0, size = 1;
  if (StartedForMpi([](const char* name) { return std::getenv(name); })) {
    // First: it sets what CUDA reads when it starts.
    auto started = MpiEnvironment::Start(&argc, &argv);
    if (!started.ok()) return Skip(std::string(started.status().message()));
    environment = *std::move(started);
    rank = environment->rank();
    size = environment->size();
  }
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
    return Skip(std::string("no CUDA device: ") + cudaGetErrorString(error));
  }
  if (devices < size) LookLikeHosts(rank);
  auto library = OpenNccl();
  if (!library.ok()) return Skip(std::string(library.status().message()));
  auto device = cuda::OpenCudaDevice({.local_rank = rank});
  if (!device.ok()) return Skip(std::string(device.status().message()));
  std::printf("rank %d of %d on %s (%d devices), NCCL %s\n", rank, size, (*device)->Name().c_str(), devices,
              NcclVersionText((*library)->Version()).c_str());
  Here() = {environment.get(), device->get(), library->get()};
  return RUN_ALL_TESTS();
}

}  // namespace

const NcclTestSurroundings& NcclHere() { return Here(); }

NcclTestHost::NcclTestHost() {
  if (Here().environment != nullptr) mpi_ = Here().environment->NewCommunicator().value();
}

}  // namespace hadal::testing

int main(int argc, char** argv) { return hadal::testing::RunTests(argc, argv); }
