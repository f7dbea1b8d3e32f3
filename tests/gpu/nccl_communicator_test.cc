// The suite of all transports over NCCL itself: ranks are MPI's processes, each with a GPU. By itself one rank, which exchanges with nobody
// but itself; under mpirun -np 2 also NCCL's transfers:
//
//   mpirun -np 2 gpu_nccl_communicator_test
//
// With fewer GPUs than ranks NCCL refuses ("Duplicate GPU detected") unless the ranks look like different hosts: NCCL_HOSTID is then set to
// the rank and everything goes over sockets, for what can be learnt so of order and errors; times mean nothing.
// Exit status 77, skipped, where there is no device or no NCCL.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cuda_device.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/comm/nccl_communicator.h"
#include "tests/comm/communicator_conformance.h"

namespace hadal {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kSkipped = 77;

// What the program has before its first test.
struct Surroundings {
  const MpiEnvironment* environment = nullptr;
  Device* device = nullptr;
  NcclLibrary* library = nullptr;
};
Surroundings& Here() {
  static Surroundings here;
  return here;
}

std::vector<RankPair> AllPairs(int size) {
  std::vector<RankPair> pairs;
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) pairs.push_back({a, b});
  }
  return pairs;
}

// Closes a communicator of the host that peers may still write through: its receives are taken back.
void CloseHost(Communicator& host) {
  char byte = 0;
  absl::StatusOr<CommRequest> never = host.Receive(&byte, 1, host.rank(), 0);
  ASSERT_TRUE(never.ok()) << never.status();
  EXPECT_FALSE(host.Wait(*never, absl::InfinitePast(), "nothing").ok());
}

class GpuNcclConformance : public ::testing::TestWithParam<testing::ConformanceCase> {};

TEST_P(GpuNcclConformance, Holds) {
  const std::unique_ptr<MpiCommunicator> host = MpiCommunicator::Create(*Here().environment).value();
  auto nccl = NcclCommunicator::Create(*Here().library, *Here().device, *host, AllPairs(host->size()), kTimeout);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  GetParam().run(**nccl, Stream::On(*Here().device, 1));
  const absl::Status status = Collectives(*host, kTimeout).Barrier("the case's end");
  EXPECT_TRUE(status.ok()) << status;
  char byte = 0;
  if ((*nccl)->Send(&byte, 0, host->rank(), 1).status().code() == absl::StatusCode::kUnavailable) {
    CloseHost(*host);  // the case was about an error
  } else {
    EXPECT_TRUE((*nccl)->Close(kTimeout).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, GpuNcclConformance, ::testing::ValuesIn(testing::PointToPointCases()),
                         testing::ConformanceCaseName);

int Skip(const std::string& why) {
  std::printf("SKIPPED: %s\n", why.c_str());
  return kSkipped;
}

int RunTests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto environment = MpiEnvironment::Start(&argc, &argv);
  if (!environment.ok()) return Skip(std::string(environment.status().message()));
  const int rank = (*environment)->rank(), size = (*environment)->size();
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
    return Skip(std::string("no CUDA device: ") + cudaGetErrorString(error));
  }
  if (devices < size) {
    setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), /*overwrite=*/0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
  }
  auto library = OpenNccl();
  if (!library.ok()) return Skip(std::string(library.status().message()));
  auto device = cuda::OpenCudaDevice({.local_rank = rank});
  if (!device.ok()) return Skip(std::string(device.status().message()));
  std::printf("rank %d of %d on %s (%d devices), NCCL %s\n", rank, size, (*device)->Name().c_str(), devices,
              NcclVersionText((*library)->Version()).c_str());
  Here() = {environment->get(), device->get(), library->get()};
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace hadal

int main(int argc, char** argv) { return hadal::RunTests(argc, argv); }
