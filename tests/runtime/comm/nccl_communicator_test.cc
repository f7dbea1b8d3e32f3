// The communicator over devices' memory, on the emulated NCCL: the suite that every transport passes, and when it
// starts what. Also nccl_fault_test.cc.
#include "runtime/comm/nccl_communicator.h"

#include <barrier>
#include <cstdlib>

#include "gmock/gmock.h"
#include "runtime/comm/collectives.h"
#include "runtime/status_macros.h"
#include "tests/runtime/comm/communicator_conformance.h"
#include "tests/runtime/comm/nccl_ranks.h"
#include "tests/runtime/comm/transfer_buffer.h"
#include "tests/support/emulated_nccl.h"
#include "tests/support/emulated_queues.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::EmulatedNccl;
using testing::EmulatedQueues;
using ::testing::HasSubstr;
using testing::HeldWork;
using testing::kHang;
using testing::NcclRank;
using testing::RunNcclRanks;
using testing::TransferBuffer;
using testing::WaitSeenDuring;

class NcclConformance : public ::testing::TestWithParam<testing::ConformanceCase> {};

TEST_P(NcclConformance, Holds) {
  for (const int size : {1, 2, 3}) {
    SCOPED_TRACE(size);
    EmulatedNccl nccl(17 + size);
    const absl::Status status = RunNcclRanks(size, nccl, [&](NcclRank& rank) {
      GetParam().run(rank.nccl, rank.memory);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    ASSERT_FALSE(HasFailure()) << "with " << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, NcclConformance, ::testing::ValuesIn(testing::PointToPointCases()),
                         testing::ConformanceCaseName);

// The receive is started on the device first, the send only then, and neither before both are posted.
TEST(NcclCommunicator, StartsNothingBeforeBothSidesAreThere) {
  EmulatedNccl nccl(1);
  const absl::Status status = RunNcclRanks(2, nccl, [&](NcclRank& rank) -> absl::Status {
    TransferBuffer value(rank.memory, {rank.host.rank()});
    const int before = nccl.messages();
    Collectives collectives(rank.host, kHang);
    CommRequest request;
    if (rank.host.rank() == 0) {
      HADAL_ASSIGN_OR_RETURN(request, rank.nccl.Send(value.data(), value.bytes(), 1, 3));
    }
    HADAL_RETURN_IF_ERROR(collectives.Barrier("posted"));
    EXPECT_EQ(nccl.messages(), before);
    if (rank.host.rank() == 1) {
      HADAL_ASSIGN_OR_RETURN(request, rank.nccl.Receive(value.data(), value.bytes(), 0, 3));
    }
    HADAL_RETURN_IF_ERROR(rank.nccl.Wait(request, absl::Now() + kHang, "a value"));
    EXPECT_THAT(value.values(), ElementsAre(0));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Two ranks send to each other, each behind the receive that it starts first: with one hardware queue, and so with
// streams that share one, both wait for ever.
TEST(NcclCommunicator, HangsWhereItsStreamsShareAHardwareQueue) {
  for (const int queues : {1, 32}) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(queues).c_str(), /*overwrite=*/1);
    EmulatedNccl nccl(6);
    std::barrier both(2);
    const absl::Status status = RunNcclRanks(2, nccl, [&](NcclRank& rank) -> absl::Status {
      HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(2));
      TransferBuffer mine(rank.memory, {rank.host.rank()}), others(rank.memory, {-1});
      HADAL_ASSIGN_OR_RETURN(auto crossing, StartCrossing(rank, mine, others, both));
      bool arrived = false;
      const int most = queues == 1 ? 300 : 30000;  // what arrives may be late on a busy machine
      for (int i = 0; i < most && !arrived; ++i) {
        HADAL_ASSIGN_OR_RETURN(arrived, rank.nccl.Test(crossing.received));
        absl::SleepFor(absl::Milliseconds(1));
      }
      HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("waited long enough"));
      if (!arrived) {
        rank.nccl.Withdraw();  // otherwise giving memory back waits for the messages
        return absl::CancelledError("both wait");
      }
      return rank.nccl.Wait(crossing.sent, absl::Now() + kHang, "a value");
    });
    EXPECT_EQ(status.code(), queues == 1 ? absl::StatusCode::kCancelled : absl::StatusCode::kOk) << status;
  }
}

// On a link a rank receives from one peer at a time, so that ranks never wait for each other in a circle
// (nccl_communicator.md).
TEST(NcclCommunicator, ReceivesFromOnePeerAtATimeOnALink) {
  EmulatedNccl nccl(8);
  std::barrier all(3);
  const absl::Status status = RunNcclRanks(3, nccl, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank();
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(4));
    std::vector<TransferBuffer> values;
    for (int i = 0; i < 4; ++i) values.emplace_back(rank.memory, std::vector<int32_t>{me});
    std::vector<CommRequest> requests;
    if (me < 2) {
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), rank.nccl.Send(values[0].data(), 4, 2, 1));
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), rank.nccl.Send(values[1].data(), 4, 2, 2));
    }
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("offered"));
    if (me == 2) rank.nccl.Progress();  // hears the offers
    all.arrive_and_wait();
    if (me == 2) {
      const int before = nccl.calls();
      for (const auto& [peer, tag] : {std::pair(0, 1), std::pair(1, 1), std::pair(0, 2)}) {
        HADAL_ASSIGN_OR_RETURN(CommRequest request, rank.nccl.Receive(values[requests.size()].data(), 4, peer, tag));
        requests.push_back(request);
      }
      EXPECT_EQ(nccl.calls(), before + 1) << "the second of rank 0 must not overtake rank 1's";
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), rank.nccl.Receive(values[3].data(), 4, 1, 2));
    }
    all.arrive_and_wait();
    for (CommRequest& request : requests) {
      HADAL_RETURN_IF_ERROR(rank.nccl.Wait(request, absl::Now() + kHang, "a value"));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// A rank that waits in a collective of the host still grants and starts what its peers wait for.
TEST(NcclCommunicator, MovesWhileItsRankWaitsElsewhere) {
  EmulatedNccl nccl(5);
  const absl::Status status = RunNcclRanks(3, nccl, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank();
    std::vector<TransferBuffer> buffers;
    std::vector<CommRequest> requests;
    for (int i = 0; i < 20; ++i) {
      buffers.emplace_back(rank.memory, std::vector<int32_t>(1000, me));
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), rank.nccl.Send(buffers.back().data(), 4000, (me + 1) % 3, 1));
    }
    for (int i = 0; i < 20; ++i) {
      buffers.emplace_back(rank.memory, std::vector<int32_t>(1000, -1));
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), rank.nccl.Receive(buffers.back().data(), 4000, (me + 2) % 3, 1));
    }
    if (me != 1) HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("first"));
    for (CommRequest& request : requests) {
      HADAL_RETURN_IF_ERROR(rank.nccl.Wait(request, absl::Now() + kHang, "a value"));
    }
    EXPECT_THAT(buffers.back().values(), ::testing::Each((me + 2) % 3));
    if (me == 1) HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("first"));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Neither a send whose bytes are still being made nor a receive whose buffer is still in use takes a place on any
// device.
TEST(NcclCommunicator, StartsNothingThatItsOwnKernelsHoldUp) {
  for (const bool sender_is_late : {true, false}) {
    EmulatedNccl nccl(7);
    const absl::Status status = RunNcclRanks(2, nccl, [&](NcclRank& rank) -> absl::Status {
      const bool sends = rank.host.rank() == 0;
      auto& queues = static_cast<EmulatedQueues&>(rank.memory.device()->queues());
      const auto late = std::make_shared<HeldWork>();
      if (sends == sender_is_late) queues.DelayMain(late);
      const int before = nccl.messages();
      TransferBuffer value(rank.memory, {rank.host.rank()});
      HADAL_ASSIGN_OR_RETURN(CommRequest request, PostFrom0To1(rank, value));
      HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("posted"));
      for (int i = 0; i < 200; ++i) rank.nccl.Progress();
      EXPECT_EQ(nccl.messages(), before);
      rank.memory.device()->FreeBytes();  // would wait for whatever is started
      HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("looked"));
      late->done = true;
      HADAL_RETURN_IF_ERROR(rank.nccl.Wait(request, absl::Now() + kHang, "a value"));
      EXPECT_THAT(value.values(), ElementsAre(0));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

// The watchdog asks the host's communicator.
TEST(NcclCommunicator, TheHostsCommunicatorKnowsItsWaits) {
  EmulatedNccl nccl(4);
  const absl::Status status = RunNcclRanks(2, nccl, [&](NcclRank& rank) -> absl::Status {
    if (rank.host.rank() == 0) return absl::OkStatus();
    TransferBuffer value(rank.memory, {1});
    HADAL_ASSIGN_OR_RETURN(CommRequest request, rank.nccl.Receive(value.data(), 4, 0, 9));
    absl::Status waited;
    const std::string seen =
        WaitSeenDuring(rank, [&] { waited = rank.nccl.Wait(request, absl::Now() + absl::Seconds(5), "activations"); });
    EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(seen, AllOf(HasSubstr("receive from rank 0, tag 9"), HasSubstr("activations")));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(EmulatedNcclDeathTest, AHostsPointerIsNotADevices) {
  EmulatedNccl nccl(9);
  const absl::Status status = RunNcclRanks(1, nccl, [&](NcclRank& rank) -> absl::Status {
    int value = 0;
    EXPECT_TRUE(rank.nccl.Send(&value, sizeof(value), 0, 0).ok());
    EXPECT_DEATH((void)rank.nccl.Receive(&value, sizeof(value), 0, 0), "Owns");
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace hadal
