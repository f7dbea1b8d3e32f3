// How an NCCL communicator ends where a message fails or never arrives: with the words and the code of the interface,
// and with nothing left waiting on the device.
#include <pthread.h>

#include <thread>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/status_macros.h"
#include "tests/runtime/comm/nccl_ranks.h"
#include "tests/runtime/comm/transfer_buffer.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NcclFault : public NcclRanksTest {};

// An error that NCCL finds by itself ends the wait of both ranks as a lost peer (exit code 6), and their communicators.
TEST_F(NcclFault, AnAsynchronousErrorIsALostPeer) {
  ExpectRuns(2, [&](NcclRank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(FailNext(rank));
    TransferBuffer value(rank.memory, {1});
    HADAL_ASSIGN_OR_RETURN(CommRequest request, PostFrom0To1(rank, value));
    const absl::Status waited = rank.nccl.Wait(request, absl::Now() + kHang, "activations");
    EXPECT_EQ(waited.code(), absl::StatusCode::kUnavailable) << waited;
    EXPECT_THAT(std::string(waited.message()),
                AllOf(HasSubstr("rank " + std::to_string(rank.host.rank())), HasSubstr("of ranks 0, 1"),
                      HasSubstr("remote process exited"), HasSubstr("activations")));
    EXPECT_EQ(PostFrom0To1(rank, value).status().code(), absl::StatusCode::kUnavailable);
    return absl::OkStatus();
  });
}

// … also where the rank waits for something else.
TEST_F(NcclFault, AnAsynchronousErrorEndsAWaitOfTheHost) {
  const absl::Status status = RunNcclRanks(2, nccl_, [&](NcclRank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(FailNext(rank));
    TransferBuffer value(rank.memory, {1});
    HADAL_RETURN_IF_ERROR(PostFrom0To1(rank, value).status());
    char byte = 0;
    HADAL_ASSIGN_OR_RETURN(CommRequest never, rank.host.Receive(&byte, 1, 1 - rank.host.rank(), 8));
    return rank.host.Wait(never, absl::Now() + kHang, "a byte that nobody sends");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a byte that nobody sends"));
}

// A message that does not arrive is a hang (exit code 5), and nothing is left waiting on the device.
TEST_F(NcclFault, AStalledMessageEndsWithItsDeadline) {
  ExpectRuns(2, [&](NcclRank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(StallNext(rank));
    TransferBuffer value(rank.memory, {1});
    HADAL_ASSIGN_OR_RETURN(CommRequest request, PostFrom0To1(rank, value));
    const absl::Status waited = rank.nccl.Wait(request, absl::Now() + absl::Milliseconds(200), "activations");
    EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded) << waited;
    return absl::OkStatus();
  });
}

// An abort waits for the device, and so for messages of other links, which may never end: all links of a rank are
// aborted at once (one that waits for another is a misuse, emulated_nccl.h).
TEST_F(NcclFault, AllItsLinksAreAbortedAtOnce) {
  ExpectRuns(3, [&](NcclRank& rank) -> absl::Status {
    // Before anything stalls: making an event or memory would wait for what is under way, and a transfer is from its
    // post on where the other rank was quicker.
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(4));
    std::vector<TransferBuffer> values;
    for (int i = 0; i < 4; ++i) values.emplace_back(rank.memory, std::vector<int32_t>{1});
    HADAL_RETURN_IF_ERROR(StallNext(rank));
    CommRequest last;
    for (int peer = 0, value = 0; peer < 3; ++peer) {
      if (peer == rank.host.rank()) continue;
      HADAL_RETURN_IF_ERROR(rank.nccl.Send(values[value++].data(), 4, peer, 0).status());
      HADAL_ASSIGN_OR_RETURN(last, rank.nccl.Receive(values[value++].data(), 4, peer, 0));
    }
    const absl::Status waited = rank.nccl.Wait(last, absl::Now() + absl::Milliseconds(200), "activations");
    EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded) << waited;
    return absl::OkStatus();
  });
}

// From here on no thread can be started by this process: each would want a stack that is larger than its address space.
void SetStackBytes(size_t bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

// Where the process may have no thread more, the thread at hand aborts what it may no longer start a thread for.
TEST_F(NcclFault, LinksAreAbortedWithoutThreadsToo) {
  constexpr size_t kTooMany = size_t{1} << 50, kUsual = size_t{8} << 20;
  const absl::Cleanup restore = [] { SetStackBytes(kUsual); };
  ExpectRuns(3, [&](NcclRank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(ArmedByRank0(rank, [] { SetStackBytes(kTooMany); }));
    EXPECT_ANY_THROW(std::thread([] {}).join());
    rank.nccl.Withdraw();
    EXPECT_EQ(rank.nccl.Send(nullptr, 0, rank.host.rank(), 0).status().code(), absl::StatusCode::kUnavailable);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace hadal::testing
