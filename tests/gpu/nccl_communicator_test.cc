// The suite of all transports over NCCL itself: ranks are MPI's processes, each with a GPU (nccl_test_main.h). By
// itself one rank, which exchanges with nobody but itself; under mpirun -np 2 also NCCL's transfers.

#include "runtime/comm/nccl_communicator.h"
#include "gmock/gmock.h"
#include "runtime/comm/collectives.h"
#include "tests/gpu/nccl_test_main.h"
#include "tests/runtime/comm/communicator_conformance.h"

namespace hadal {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

std::vector<TransferGroup> AllConnected(int size) {
  TransferGroup group;
  for (int a = 0; a < size; ++a) {
    group.ranks.push_back(a);
    for (int b = a + 1; b < size; ++b) group.pairs.push_back({a, b});
  }
  TransferGroup exchanges = group;
  exchanges.kind = TransferGroup::Kind::kExchanges;
  return {group, exchanges};
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
  const testing::NcclTestSurroundings& here = testing::NcclHere();
  testing::NcclTestHost ranks;
  Communicator& host = ranks.communicator();
  auto nccl = NcclCommunicator::Create(*here.library, *here.device, host, AllConnected(host.size()), kTimeout);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  GetParam().run(**nccl, Stream::On(*here.device, 1));
  const absl::Status status = Collectives(host, kTimeout).Barrier("the case's end");
  EXPECT_TRUE(status.ok()) << status;
  char byte = 0;
  if ((*nccl)->Send(&byte, 0, host.rank(), 1).status().code() == absl::StatusCode::kUnavailable) {
    CloseHost(host);  // the case was about an error
  } else {
    EXPECT_TRUE((*nccl)->Close(kTimeout).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, GpuNcclConformance, ::testing::ValuesIn(testing::PointToPointCases()),
                         testing::ConformanceCaseName);

}  // namespace
}  // namespace hadal
