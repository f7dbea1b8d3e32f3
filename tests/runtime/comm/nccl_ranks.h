// Ranks that are threads, each with an emulated device, connected by the emulated NCCL.
#pragma once

#include <atomic>
#include <barrier>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/status_macros.h"
#include "runtime/stream.h"
#include "tests/runtime/comm/transfer_buffer.h"
#include "tests/support/emulated_nccl.h"

namespace hadal::testing {

// After which a wait has hung.
inline constexpr absl::Duration kHang = absl::Seconds(30);

// Every rank with every other, by messages and by exchanges.
inline std::vector<TransferGroup> AllConnected(int size) {
  TransferGroup group;
  for (int a = 0; a < size; ++a) {
    group.ranks.push_back(a);
    for (int b = a + 1; b < size; ++b) group.pairs.push_back({a, b});
  }
  TransferGroup exchanges = group;
  exchanges.kind = TransferGroup::Kind::kExchanges;
  return {group, exchanges};
}

// What a rank's program is given.
struct NcclRank {
  Communicator& host;
  NcclCommunicator& nccl;
  Stream memory;  // on the rank's device
};

// Whether no error has ended it.
inline bool Works(NcclCommunicator& communicator) {
  absl::StatusOr<CommRequest> sent = communicator.Send(nullptr, 0, communicator.rank(), 99);
  absl::StatusOr<CommRequest> received = communicator.Receive(nullptr, 0, communicator.rank(), 99);
  return sent.ok() && received.ok() && communicator.Test(*sent).ok() && communicator.Test(*received).ok();
}

// Rank 0 calls `arm` between two barriers: no rank's message of before is hit,
// and each one's next is.
inline absl::Status ArmedByRank0(NcclRank& rank, const std::function<void()>& arm) {
  Collectives collectives(rank.host, kHang);
  HADAL_RETURN_IF_ERROR(collectives.Barrier("connected"));
  if (rank.host.rank() == 0) arm();
  return collectives.Barrier("armed");
}

// Posts this rank's side of a message from rank 0 to rank 1.
inline absl::StatusOr<CommRequest> PostFrom0To1(NcclRank& rank, const TransferBuffer& value) {
  if (rank.host.rank() == 0) return rank.nccl.Send(value.data(), value.bytes(), 1, 0);
  return rank.nccl.Receive(value.data(), value.bytes(), 0, 0);
}

// Of two ranks: starts a send and a receive between this one and the other, whose device has started neither when
// this one's starts its receive. `both`: of the two ranks.
struct CrossingMessages {
  CommRequest sent, received;
};
inline absl::StatusOr<CrossingMessages> StartCrossing(NcclRank& rank, const TransferBuffer& mine,
                                                      const TransferBuffer& others, std::barrier<>& both) {
  const int other = 1 - rank.host.rank();
  HADAL_ASSIGN_OR_RETURN(const CommRequest sent, rank.nccl.Send(mine.data(), mine.bytes(), other, 1));
  HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("offered"));
  rank.nccl.Progress();  // hears the offer
  both.arrive_and_wait();
  HADAL_ASSIGN_OR_RETURN(const CommRequest received, rank.nccl.Receive(others.data(), others.bytes(), other, 1));
  both.arrive_and_wait();
  return CrossingMessages{sent, received};
}

// Runs `body` on `size` ranks with a device each, all connected; communicators that still work are closed behind it,
// others abandoned.
inline absl::Status RunNcclRanks(int size, EmulatedNccl& nccl, const std::function<absl::Status(NcclRank&)>& body,
                                 absl::Duration timeout = kHang) {
  InProcessWorld world(size);
  return world.Run([&](Communicator& host) -> absl::Status {
    EmulatedDevice device(3 + host.rank());
    const std::unique_ptr<NcclLibrary> library = nccl.LibraryFor(device);
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<NcclCommunicator> communicator,
                           NcclCommunicator::Create(*library, device, host, AllConnected(size), timeout));
    NcclRank rank{host, *communicator, Stream::On(device, 1)};
    const absl::Status status = body(rank);
    // All have ended before the first one lets go.
    Collectives collectives(host, kHang);
    absl::StatusOr<bool> broken = collectives.AnyRank(!status.ok() || !Works(*communicator), "the end");
    if (broken.ok() && !*broken) return communicator->Close(kHang);
    host.Abort(1);
    return status;
  });
}

// What the watchdog of this rank sees it wait for during `call`.
inline std::string WaitSeenDuring(NcclRank& rank, const std::function<void()>& call) {
  std::string seen;
  std::atomic<bool> ended = false;
  std::thread watchdog([&] {
    while (!ended && seen.empty()) {
      absl::SleepFor(absl::Milliseconds(1));
      if (const std::optional<WaitInProgress> wait = rank.host.CurrentWait()) seen = wait->description;
    }
  });
  call();
  ended = true;
  watchdog.join();
  return seen;
}

// Programs that all ranks run, on an NCCL whose messages may fail or stall.
class NcclRanksTest : public ::testing::Test {
 protected:
  // `body` ends well on each of `size` ranks.
  void ExpectRuns(int size, const std::function<absl::Status(NcclRank&)>& body, absl::Duration timeout = kHang) {
    const absl::Status status = RunNcclRanks(size, nccl_, body, timeout);
    EXPECT_TRUE(status.ok()) << status;
  }
  // All ranks call one of them: the next message fails on both its sides, or does not end, nor does any behind it.
  absl::Status FailNext(NcclRank& rank) {
    return ArmedByRank0(rank, [this] { nccl_.FailAfter(nccl_.messages()); });
  }
  absl::Status StallNext(NcclRank& rank) {
    return ArmedByRank0(rank, [this] { nccl_.StallAfter(nccl_.messages()); });
  }

  EmulatedNccl nccl_{4};
};

}  // namespace hadal::testing
