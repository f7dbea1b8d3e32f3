// Whole training runs over NCCL itself, beside the same through the host's memory: the same bits. Ranks are MPI's
// processes (nccl_test_main.h):
//
//   mpirun -np 2 gpu_nccl_test --gtest_filter='*GpuNcclRun*'

#include "gtest/gtest.h"
#include "kernels/cuda_host/cuda_device.h"
#include "runtime/check.h"
#include "runtime/comm/communicator.h"
#include "tests/gpu/nccl_test_main.h"
#include "tests/integration/nccl_run_cases.h"

namespace hadal::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

std::unique_ptr<Device> OpenDevice(int rank) {
  absl::StatusOr<std::unique_ptr<Device>> device = cuda::OpenCudaDevice({.local_rank = rank});
  if (!device.ok()) CheckFailed(__FILE__, __LINE__, std::string(device.status().message()));
  return *std::move(device);
}

// Of this rank: what other ranks hold is empty in both.
TEST(GpuNcclRunTest, EveryRunHasTheHostsBits) {
  const NcclTestSurroundings& here = NcclHere();
  NcclTestHost host;
  Communicator& world = host.communicator();
  const int ranks = world.size();
  if (ranks != 2 && ranks != 4 && ranks != 8) GTEST_SKIP() << "for mpirun -np 2, 4 or 8";
  const Corpus corpus = RandomCorpus(60, 7, kNcclRunVocabulary, 5);
  for (const NcclRunCase& run : NcclRunCases(ranks)) {
    SCOPED_TRACE(run.name);
    RunSpec spec = run.spec;
    spec.make_device = OpenDevice;
    const RunOutcome by_host = TrainRank(spec, corpus, world);
    int connected = 0;
    spec.connect_devices = [&](Device& device, Communicator& communicator, std::span<const TransferGroup> groups) {
      connected = static_cast<int>(groups.size());
      return NcclCommunicator::Create(*here.library, device, communicator, groups, kTimeout);
    };
    const RunOutcome by_nccl = TrainRank(spec, corpus, world);
    EXPECT_GT(connected, 0);
    EXPECT_EQ(FirstDifference(by_host, by_nccl), "");
    EXPECT_EQ(by_host.validation_loss, by_nccl.validation_loss);
  }
}

}  // namespace
}  // namespace hadal::testing
