// The communicator over devices' memory, on the emulated NCCL: the suite that every transport passes, and what is NCCL's own.
#include "runtime/comm/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/comm/transfer_buffer.h"
#include "tests/support/emulated_nccl.h"
#include "tests/support/emulated_queues.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::EmulatedDevice;
using testing::EmulatedNccl;
using testing::EmulatedQueues;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TransferBuffer;

constexpr absl::Duration kHang = absl::Seconds(30);

std::vector<RankPair> AllPairs(int size) {
  std::vector<RankPair> pairs;
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) pairs.push_back({a, b});
  }
  return pairs;
}

struct Rank {
  Communicator& host;
  NcclCommunicator& nccl;
  Stream memory;
};

bool Works(NcclCommunicator& communicator) {
  absl::StatusOr<CommRequest> sent = communicator.Send(nullptr, 0, communicator.rank(), 99);
  absl::StatusOr<CommRequest> received = communicator.Receive(nullptr, 0, communicator.rank(), 99);
  return sent.ok() && received.ok() && communicator.Test(*sent).ok() && communicator.Test(*received).ok();
}

// Runs `body` on `size` ranks with a device each, all connected; communicators that still work are closed behind it, others abandoned.
absl::Status RunRanks(int size, EmulatedNccl& nccl, const std::function<absl::Status(Rank&)>& body,
                      absl::Duration timeout = kHang) {
  InProcessWorld world(size);
  return world.Run([&](Communicator& host) -> absl::Status {
    EmulatedDevice device(3 + host.rank());
    const std::unique_ptr<NcclLibrary> library = nccl.LibraryFor(device);
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<NcclCommunicator> communicator,
                           NcclCommunicator::Create(*library, device, host, AllPairs(size), timeout));
    Rank rank{host, *communicator, Stream::On(device, 1)};
    const absl::Status status = body(rank);
    // All have ended before the first one lets go.
    Collectives collectives(host, kHang);
    absl::StatusOr<bool> broken = collectives.AnyRank(!status.ok() || !Works(*communicator), "the end");
    if (broken.ok() && !*broken) return communicator->Close(kHang);
    host.Abort(1);
    return status;
  });
}

class NcclConformance : public ::testing::TestWithParam<testing::ConformanceCase> {};

TEST_P(NcclConformance, Holds) {
  for (const int size : {1, 2, 3}) {
    SCOPED_TRACE(size);
    EmulatedNccl nccl(17 + size);
    const absl::Status status = RunRanks(size, nccl, [&](Rank& rank) {
      GetParam().run(rank.nccl, rank.memory);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    ASSERT_FALSE(HasFailure()) << "with " << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, NcclConformance, ::testing::ValuesIn(testing::PointToPointCases()),
                         testing::ConformanceCaseName);

TEST(InRounds, ConnectsNeighboursInTwoRounds) {
  std::vector<RankPair> ring;
  for (int rank = 0; rank < 6; ++rank) ring.push_back({std::min(rank, (rank + 1) % 6), std::max(rank, (rank + 1) % 6)});
  ring.push_back(ring.front());
  EXPECT_THAT(InRounds(ring), ElementsAre(RankPair{0, 1}, RankPair{2, 3}, RankPair{4, 5}, RankPair{1, 2},
                                          RankPair{3, 4}, RankPair{0, 5}));
}

// The receive is started on the device first, the send only then, and neither before both are posted.
TEST(NcclCommunicator, StartsNothingBeforeBothSidesAreThere) {
  EmulatedNccl nccl(1);
  const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
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

// A rank that waits in a collective of the host still grants and starts what its peers wait for.
TEST(NcclCommunicator, MovesWhileItsRankWaitsElsewhere) {
  EmulatedNccl nccl(5);
  const absl::Status status = RunRanks(3, nccl, [&](Rank& rank) -> absl::Status {
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

// Work that ends when a test says so.
struct HeldWork final : testing::PendingWork {
  bool Done() override { return done; }
  std::atomic<bool> done = false;
};

// Neither a send whose bytes are still being made nor a receive whose buffer is still in use takes a place on any device. What is received
// behind a queue of its own does not wait for the main order.
TEST(NcclCommunicator, StartsNothingThatItsOwnKernelsHoldUp) {
  for (const bool sender_is_late : {true, false}) {
    for (const bool behind_a_queue : {true, false}) {
      EmulatedNccl nccl(7);
      const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
        const bool sends = rank.host.rank() == 0;
        auto& queues = static_cast<EmulatedQueues&>(rank.memory.device()->queues());
        HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Queue queue, queues.MakeQueue());
        const auto late = std::make_shared<HeldWork>();
        if (sends == sender_is_late) queues.DelayMain(late);
        const int before = nccl.messages();
        TransferBuffer value(rank.memory, {rank.host.rank()});
        CommRequest request;
        if (sends) {
          HADAL_ASSIGN_OR_RETURN(request, rank.nccl.Send(value.data(), 4, 1, 3));
        } else if (behind_a_queue) {
          HADAL_ASSIGN_OR_RETURN(request, rank.nccl.ReceiveBehind(queue, value.data(), 4, 0, 3));
        } else {
          HADAL_ASSIGN_OR_RETURN(request, rank.nccl.Receive(value.data(), 4, 0, 3));
        }
        HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("posted"));
        const bool is_free = !sender_is_late && behind_a_queue;
        for (int i = 0; i < 200; ++i) rank.nccl.Progress();
        EXPECT_TRUE(is_free || nccl.messages() == before);
        if (!is_free) rank.memory.device()->FreeBytes();  // would wait for whatever is started
        HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("looked"));
        if (is_free) HADAL_RETURN_IF_ERROR(rank.nccl.Wait(request, absl::Now() + kHang, "a value"));
        late->done = true;
        if (request.active()) HADAL_RETURN_IF_ERROR(rank.nccl.Wait(request, absl::Now() + kHang, "a value"));
        EXPECT_THAT(value.values(), ElementsAre(0));
        queues.DestroyQueue(queue);
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// Two ranks start a receive from each other, and then let their devices stand still, neither having heard of the other's.
TEST(NcclCommunicator, LetsWhatIsStartedEndBeforeAStandstill) {
  EmulatedNccl nccl(6);
  std::barrier both(2);
  const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
    const int me = rank.host.rank(), other = 1 - me;
    TransferBuffer mine(rank.memory, {me}), others(rank.memory, {-1});
    HADAL_ASSIGN_OR_RETURN(CommRequest sent, rank.nccl.Send(mine.data(), 4, other, 1));
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("offered"));
    rank.nccl.Progress();  // hears the offer
    both.arrive_and_wait();
    HADAL_ASSIGN_OR_RETURN(CommRequest received, rank.nccl.Receive(others.data(), 4, other, 1));  // starts it
    both.arrive_and_wait();
    rank.memory.device()->FreeBytes();
    HADAL_RETURN_IF_ERROR(rank.nccl.Wait(sent, absl::Now() + kHang, "a value"));
    HADAL_RETURN_IF_ERROR(rank.nccl.Wait(received, absl::Now() + kHang, "a value"));
    EXPECT_THAT(others.values(), ElementsAre(other));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Rank 1 is about to stand still behind a receive from rank 0, which takes its time: it does not start one from rank 2 meanwhile.
TEST(NcclCommunicator, StartsNoReceiveBeforeAStandstill) {
  EmulatedNccl nccl(6);
  std::barrier all(3);
  std::atomic<bool> stands = false, released = false;
  const absl::Status status = RunRanks(3, nccl, [&](Rank& rank) -> absl::Status {
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
  EXPECT_TRUE(status.ok()) << status;
}

// An event that is made may let the device stand still: those of transfers that were reserved are there before they are posted.
TEST(NcclCommunicator, MakesNothingForTransfersThatWereReserved) {
  constexpr int kTransfers = 40;
  EmulatedNccl nccl(6);
  const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(kTransfers / 2));
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(kTransfers / 2));
    std::vector<TransferBuffer> values;
    for (int i = 0; i <= kTransfers; ++i) values.emplace_back(rank.memory, std::vector<int32_t>{i});
    int told = 0;
    rank.memory.device()->OnStandstill([&] { ++told; });
    std::vector<CommRequest> requests(kTransfers + 1);
    const auto post = [&](int i) -> absl::Status {
      absl::StatusOr<CommRequest> posted = rank.host.rank() == 0 ? rank.nccl.Send(values[i].data(), 4, 1, 0)
                                                                 : rank.nccl.Receive(values[i].data(), 4, 0, 0);
      HADAL_ASSIGN_OR_RETURN(requests[i], posted);
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
  EXPECT_TRUE(status.ok()) << status;
}

// What does not end before a standstill is a hang, which the next call says, and the device goes on.
TEST(NcclCommunicator, AStandstillBehindAStalledMessageIsAHang) {
  EmulatedNccl nccl(4);
  const auto body = [&](Rank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("connected"));
    if (rank.host.rank() == 0) nccl.StallAfter(nccl.messages());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("armed"));
    TransferBuffer value(rank.memory, {1});
    const int peer = 1 - rank.host.rank();
    if (rank.host.rank() == 0) HADAL_RETURN_IF_ERROR(rank.nccl.Send(value.data(), 4, peer, 0).status());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("offered"));
    rank.nccl.Progress();
    if (rank.host.rank() == 1) HADAL_RETURN_IF_ERROR(rank.nccl.Receive(value.data(), 4, peer, 0).status());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("granted"));
    rank.nccl.Progress();
    std::string seen;
    std::thread watchdog([&] {
      for (int i = 0; i < 1000 && seen.empty(); ++i) {
        absl::SleepFor(absl::Milliseconds(1));
        if (const std::optional<WaitInProgress> wait = rank.host.CurrentWait()) seen = wait->description;
      }
    });
    rank.memory.device()->FreeBytes();
    watchdog.join();
    EXPECT_THAT(seen, HasSubstr("for transfers to end before its device stands still"));
    const absl::Status next = rank.nccl.Send(value.data(), 4, peer, 0).status();
    EXPECT_EQ(next.code(), absl::StatusCode::kDeadlineExceeded) << next;
    EXPECT_THAT(std::string(next.message()), HasSubstr("1 transfers to end"));
    return absl::OkStatus();
  };
  const absl::Status status = RunRanks(2, nccl, body, absl::Seconds(1));
  EXPECT_TRUE(status.ok()) << status;
}

// An error that NCCL finds by itself ends the wait of both ranks as a lost peer (exit code 6), and their communicators.
TEST(NcclCommunicator, AnAsynchronousErrorIsALostPeer) {
  EmulatedNccl nccl(2);
  const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("connected"));
    if (rank.host.rank() == 0) nccl.FailAfter(nccl.messages());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("armed"));
    TransferBuffer value(rank.memory, {1});
    const int peer = 1 - rank.host.rank();
    absl::StatusOr<CommRequest> request =
        rank.host.rank() == 0 ? rank.nccl.Send(value.data(), 4, peer, 0) : rank.nccl.Receive(value.data(), 4, peer, 0);
    HADAL_RETURN_IF_ERROR(request.status());
    const absl::Status waited = rank.nccl.Wait(*request, absl::Now() + kHang, "activations");
    EXPECT_EQ(waited.code(), absl::StatusCode::kUnavailable) << waited;
    EXPECT_THAT(std::string(waited.message()), AllOf(HasSubstr("rank " + std::to_string(peer)),
                                                     HasSubstr("remote process exited"), HasSubstr("activations")));
    EXPECT_EQ(rank.nccl.Send(value.data(), 4, peer, 0).status().code(), absl::StatusCode::kUnavailable);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// … also where the rank waits for something else.
TEST(NcclCommunicator, AnAsynchronousErrorEndsAWaitOfTheHost) {
  EmulatedNccl nccl(2);
  const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("connected"));
    if (rank.host.rank() == 0) nccl.FailAfter(nccl.messages());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("armed"));
    TransferBuffer value(rank.memory, {1});
    const int peer = 1 - rank.host.rank();
    absl::StatusOr<CommRequest> request =
        rank.host.rank() == 0 ? rank.nccl.Send(value.data(), 4, peer, 0) : rank.nccl.Receive(value.data(), 4, peer, 0);
    HADAL_RETURN_IF_ERROR(request.status());
    char byte = 0;
    HADAL_ASSIGN_OR_RETURN(CommRequest never, rank.host.Receive(&byte, 1, peer, 8));
    return rank.host.Wait(never, absl::Now() + kHang, "a byte that nobody sends");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a byte that nobody sends"));
}

// A message that does not arrive is a hang (exit code 5), and nothing is left waiting on the device.
TEST(NcclCommunicator, AStalledMessageEndsWithItsDeadline) {
  EmulatedNccl nccl(4);
  const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("connected"));
    if (rank.host.rank() == 0) nccl.StallAfter(nccl.messages());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("armed"));
    TransferBuffer value(rank.memory, {1});
    const int peer = 1 - rank.host.rank();
    absl::StatusOr<CommRequest> request =
        rank.host.rank() == 0 ? rank.nccl.Send(value.data(), 4, peer, 0) : rank.nccl.Receive(value.data(), 4, peer, 0);
    HADAL_RETURN_IF_ERROR(request.status());
    const absl::Status waited = rank.nccl.Wait(*request, absl::Now() + absl::Milliseconds(200), "activations");
    EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded) << waited;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// An abort waits for the device, and so for messages of other links, which may never end: all links of a rank are aborted at once (one that
// waits for another is a misuse, emulated_nccl.h).
TEST(NcclCommunicator, AllItsLinksAreAbortedAtOnce) {
  EmulatedNccl nccl(4);
  const absl::Status status = RunRanks(3, nccl, [&](Rank& rank) -> absl::Status {
    // Before anything stalls: making an event or memory would wait for what is under way, and a transfer is from its post on where the other
    // rank was quicker.
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(4));
    std::vector<TransferBuffer> values;
    for (int i = 0; i < 4; ++i) values.emplace_back(rank.memory, std::vector<int32_t>{1});
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("connected"));
    if (rank.host.rank() == 0) nccl.StallAfter(nccl.messages());
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("armed"));
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
  EXPECT_TRUE(status.ok()) << status;
}

// The watchdog asks the host's communicator.
TEST(NcclCommunicator, TheHostsCommunicatorKnowsItsWaits) {
  EmulatedNccl nccl(4);
  const absl::Status status = RunRanks(2, nccl, [&](Rank& rank) -> absl::Status {
    if (rank.host.rank() == 0) return absl::OkStatus();
    TransferBuffer value(rank.memory, {1});
    HADAL_ASSIGN_OR_RETURN(CommRequest request, rank.nccl.Receive(value.data(), 4, 0, 9));
    std::string seen;
    std::thread watchdog([&] {
      for (int i = 0; i < 1000 && seen.empty(); ++i) {
        absl::SleepFor(absl::Milliseconds(1));
        if (const std::optional<WaitInProgress> wait = rank.host.CurrentWait()) seen = wait->description;
      }
    });
    const absl::Status waited = rank.nccl.Wait(request, absl::Now() + absl::Milliseconds(200), "activations");
    watchdog.join();
    EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(seen, AllOf(HasSubstr("receive from rank 0, tag 9"), HasSubstr("activations")));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(EmulatedNcclDeathTest, AHostsPointerIsNotADevices) {
  EmulatedNccl nccl(9);
  const absl::Status status = RunRanks(1, nccl, [&](Rank& rank) -> absl::Status {
    int value = 0;
    EXPECT_TRUE(rank.nccl.Send(&value, sizeof(value), 0, 0).ok());
    EXPECT_DEATH((void)rank.nccl.Receive(&value, sizeof(value), 0, 0), "Owns");
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace hadal
