// How an NCCL communicator ends where a message fails or never arrives: with the words and the code of the interface,
// and with nothing left waiting on the device.
#include <pthread.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/status_macros.h"
#include "tests/runtime/comm/nccl_ranks.h"
#include "tests/runtime/comm/transfer_buffer.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
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

// What an NCCL communicator does before its device may stand still for the host: it lets what is started end, starts no
// receive, and makes nothing that could have been made before.

class NcclStandstill : public NcclRanksTest {};

// Two ranks start a receive from each other, and then let their devices stand still, neither having heard of the
// other's.
TEST_F(NcclStandstill, LetsWhatIsStartedEndBeforeAStandstill) {
  std::barrier both(2);
  ExpectRuns(2, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank(), other = 1 - me;
    TransferBuffer mine(rank.memory, {me}), others(rank.memory, {-1});
    HADAL_ASSIGN_OR_RETURN(auto crossing, StartCrossing(rank, mine, others, both));
    rank.memory.device()->FreeBytes();
    HADAL_RETURN_IF_ERROR(rank.nccl.Wait(crossing.sent, absl::Now() + kHang, "a value"));
    HADAL_RETURN_IF_ERROR(rank.nccl.Wait(crossing.received, absl::Now() + kHang, "a value"));
    EXPECT_THAT(others.values(), ElementsAre(other));
    return absl::OkStatus();
  });
}

// Rank 1 is about to stand still behind a receive from rank 0, which takes its time: it does not start one from rank 2
// meanwhile.
TEST_F(NcclStandstill, StartsNoReceiveBeforeAStandstill) {
  std::barrier all(3);
  std::atomic<bool> stands = false, released = false;
  ExpectRuns(3, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank();
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(2));  // so that no event has to be made behind the first receive
    TransferBuffer first(rank.memory, {me}), second(rank.memory, {me});
    CommRequest one, two;
    if (me == 0) {
      HADAL_ASSIGN_OR_RETURN(one, rank.nccl.Send(first.data(), 4, 1, 1));
    }
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("offered"));
    if (me == 1) rank.nccl.Progress();  // hears the offer
    all.arrive_and_wait();              // behind which rank 0 makes no progress until it is released
    if (me == 0) {
      while (!released) absl::SleepFor(absl::Microseconds(50));
    } else if (me == 1) {
      HADAL_ASSIGN_OR_RETURN(one, rank.nccl.Receive(first.data(), 4, 0, 1));
      HADAL_ASSIGN_OR_RETURN(two, rank.nccl.Receive(second.data(), 4, 2, 1));
      stands = true;
      rank.memory.device()->FreeBytes();
      EXPECT_TRUE(released) << "the receive from rank 0 had not ended";
    } else {
      while (!stands) absl::SleepFor(absl::Microseconds(50));
      HADAL_ASSIGN_OR_RETURN(two, rank.nccl.Send(second.data(), 4, 1, 1));
      for (int i = 0; i < 200 && two.active(); ++i) {
        HADAL_ASSIGN_OR_RETURN(const bool done, rank.nccl.Test(two));
        EXPECT_FALSE(done);
        absl::SleepFor(absl::Microseconds(50));
      }
      released = true;
    }
    for (CommRequest* request : {&one, &two}) {
      if (request->active()) HADAL_RETURN_IF_ERROR(rank.nccl.Wait(*request, absl::Now() + kHang, "a value"));
    }
    if (me != 1) return absl::OkStatus();
    EXPECT_THAT(first.values(), ElementsAre(0));
    EXPECT_THAT(second.values(), ElementsAre(2));
    return absl::OkStatus();
  });
}

// An event that is made may let the device stand still: those of transfers that were reserved are there before they are
// posted.
TEST_F(NcclStandstill, MakesNothingForTransfersThatWereReserved) {
  constexpr int kTransfers = 40;
  ExpectRuns(2, [&](NcclRank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(kTransfers / 2));
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(kTransfers / 2));
    std::vector<TransferBuffer> values;
    for (int i = 0; i <= kTransfers; ++i) values.emplace_back(rank.memory, std::vector<int32_t>{i});
    int told = 0;
    rank.memory.device()->OnStandstill([&] { ++told; });
    std::vector<CommRequest> requests(kTransfers + 1);
    const auto post = [&](int i) -> absl::Status {
      HADAL_ASSIGN_OR_RETURN(requests[i], PostFrom0To1(rank, values[i]));
      return absl::OkStatus();
    };
    const auto wait = [&](int i) { return rank.nccl.Wait(requests[i], absl::Now() + kHang, "a value"); };
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < kTransfers; ++i) HADAL_RETURN_IF_ERROR(post(i));
      for (int i = 0; i < kTransfers; ++i) HADAL_RETURN_IF_ERROR(wait(i));
    }
    EXPECT_EQ(told, 0);
    EXPECT_EQ(rank.nccl.unreserved(), 0);
    for (int i = 0; i <= kTransfers; ++i) HADAL_RETURN_IF_ERROR(post(i));
    EXPECT_EQ(told, 1) << "for one more";
    EXPECT_EQ(rank.nccl.unreserved(), 1);
    for (int i = 0; i <= kTransfers; ++i) HADAL_RETURN_IF_ERROR(wait(i));
    EXPECT_THAT(values.back().values(), ElementsAre(kTransfers));
    rank.memory.device()->OnStandstill(nullptr);
    return absl::OkStatus();
  });
}

// What does not end before a standstill is a hang, which the next call says, and the device goes on.
TEST_F(NcclStandstill, AStandstillBehindAStalledMessageIsAHang) {
  const auto body = [&](NcclRank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(StallNext(rank));
    TransferBuffer value(rank.memory, {1});
    if (rank.host.rank() == 0) HADAL_RETURN_IF_ERROR(PostFrom0To1(rank, value).status());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("offered"));
    rank.nccl.Progress();
    if (rank.host.rank() == 1) HADAL_RETURN_IF_ERROR(PostFrom0To1(rank, value).status());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("granted"));
    rank.nccl.Progress();
    const std::string seen = WaitSeenDuring(rank, [&] { rank.memory.device()->FreeBytes(); });
    EXPECT_THAT(seen, HasSubstr("for transfers to end before its device's standstill"));
    const absl::Status next = rank.nccl.Send(value.data(), 4, 1 - rank.host.rank(), 0).status();
    EXPECT_EQ(next.code(), absl::StatusCode::kDeadlineExceeded) << next;
    EXPECT_THAT(std::string(next.message()), HasSubstr("1 transfers to end"));
    return absl::OkStatus();
  };
  ExpectRuns(2, body, absl::Seconds(5));  // in which the ranks connect, too
}

}  // namespace
}  // namespace hadal::testing
