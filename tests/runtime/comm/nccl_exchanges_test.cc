// Exchanges over NCCL: when ranks start them, and what they refuse. That they move the bytes: the conformance suite.
#include "runtime/comm/nccl_exchanges.h"

#include <atomic>
#include <barrier>

#include "gmock/gmock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/status_macros.h"
#include "tests/runtime/comm/nccl_ranks.h"
#include "tests/runtime/comm/transfer_buffer.h"
#include "tests/support/emulated_queues.h"

namespace hadal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An event of a rank's main order.
class MainEvent {
 public:
  explicit MainEvent(const NcclRank& rank) : queues_(rank.memory.device()->queues()), event_(*queues_.MakeEvent()) {
    Record();
  }
  ~MainEvent() { queues_.DestroyEvent(event_); }
  MainEvent(const MainEvent&) = delete;
  MainEvent& operator=(const MainEvent&) = delete;
  // Again, of what is in the main order by now.
  void Record() { queues_.Record(event_, DeviceQueues::kMain); }
  DeviceQueues::Event get() const { return event_; }

 private:
  DeviceQueues& queues_;
  const DeviceQueues::Event event_;
};

absl::Status AwaitAll(NcclRank& rank, std::vector<CommRequest>& requests) {
  for (CommRequest& request : requests) {
    if (!request.active()) continue;
    HADAL_RETURN_IF_ERROR(rank.nccl.Wait(request, absl::Now() + kHang, "an exchange"));
  }
  return absl::OkStatus();
}

class NcclExchangesTest : public NcclRanksTest {};

TEST_F(NcclExchangesTest, IsOneGroupOnEachRankThatHasMessages) {
  ExpectRuns(3, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank();
    Collectives collectives(rank.host, kHang);
    HADAL_RETURN_IF_ERROR(collectives.Barrier("connected"));
    const int groups = nccl_.groups(), calls = nccl_.calls(), messages = nccl_.messages();
    HADAL_RETURN_IF_ERROR(collectives.Barrier("counted"));
    const TransferBuffer mine(rank.memory, {me, me}), theirs(rank.memory, {-1, -1});
    const MainEvent written(rank);
    std::vector<ExchangePart> parts;
    if (me < 2) parts = {{1 - me, mine.data(), 8, theirs.data(), 8}};
    std::vector<CommRequest> requests;
    HADAL_RETURN_IF_ERROR(rank.nccl.Exchange(parts, 1, written.get(), requests));
    EXPECT_EQ(requests.size(), 1u);
    HADAL_RETURN_IF_ERROR(AwaitAll(rank, requests));
    if (me < 2) {
      EXPECT_THAT(theirs.values(), ElementsAre(1 - me, 1 - me));
    }
    HADAL_RETURN_IF_ERROR(collectives.Barrier("done"));
    EXPECT_EQ(nccl_.groups() - groups, 2);
    EXPECT_EQ(nccl_.calls() - calls, 4);
    EXPECT_EQ(nccl_.messages() - messages, 2);
    return collectives.Barrier("counted again");
  });
}

// As a replica's that is alone in its block: it must not hold up the others' next exchanges.
// One peer is served as by a message; several share more blocks.
TEST_F(NcclExchangesTest, HasMoreBlocksForSeveralPeers) {
  ExpectRuns(2, [](NcclRank&) { return absl::OkStatus(); });
  ExpectRuns(3, [](NcclRank&) { return absl::OkStatus(); });
  EXPECT_THAT(nccl_.blocks(), ElementsAre(4, 4, 4, 4, 4, 16));
}

TEST_F(NcclExchangesTest, WithoutMessagesItEndsBeforeTheDevicesLaterWork) {
  ExpectRuns(2, [&](NcclRank& rank) -> absl::Status {
    const MainEvent written(rank);
    const auto later = std::make_shared<HeldWork>();
    static_cast<EmulatedQueues&>(rank.memory.device()->queues()).DelayMain(later);
    std::vector<CommRequest> requests;
    HADAL_RETURN_IF_ERROR(rank.nccl.Exchange({}, 1, written.get(), requests));
    const absl::Status ended = AwaitAll(rank, requests);
    later->done = true;
    return ended;
  });
}

// Not even between ranks that have: a rank that waits for another in it could be what that one waits for.
TEST_F(NcclExchangesTest, StartsNothingBeforeAllHaveDeclared) {
  ExpectRuns(3, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank();
    Collectives collectives(rank.host, kHang);
    const TransferBuffer mine(rank.memory, {me}), theirs(rank.memory, {-1});
    HADAL_RETURN_IF_ERROR(collectives.Barrier("connected"));
    const int before = nccl_.groups();
    HADAL_RETURN_IF_ERROR(collectives.Barrier("counted"));
    const auto late = std::make_shared<HeldWork>();
    if (me == 2) static_cast<EmulatedQueues&>(rank.memory.device()->queues()).DelayMain(late);
    const MainEvent written(rank);
    std::vector<ExchangePart> parts;
    if (me < 2) parts = {{1 - me, mine.data(), 4, theirs.data(), 4}};
    std::vector<CommRequest> requests;
    HADAL_RETURN_IF_ERROR(rank.nccl.Exchange(parts, 1, written.get(), requests));
    HADAL_RETURN_IF_ERROR(collectives.Barrier("posted"));
    for (int i = 0; i < 200; ++i) rank.nccl.Progress();
    EXPECT_EQ(nccl_.groups(), before);
    rank.memory.device()->FreeBytes();  // would wait for whatever is started
    HADAL_RETURN_IF_ERROR(collectives.Barrier("looked"));
    late->done = true;
    return AwaitAll(rank, requests);
  });
}

// Rank 1 is about to stand still behind a receive from rank 0, which takes its time: it does not declare an exchange
// whose bytes are there meanwhile, for which the others would wait on their devices.
TEST_F(NcclExchangesTest, DeclaresNothingBeforeAStandstill) {
  std::barrier all(3);
  std::atomic<bool> stands = false, released = false;
  const auto late = std::make_shared<HeldWork>();
  ExpectRuns(3, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank();
    HADAL_RETURN_IF_ERROR(rank.nccl.Reserve(1));
    TransferBuffer value(rank.memory, {me});
    CommRequest first;
    std::vector<CommRequest> exchange;
    MainEvent written(rank);
    if (me == 0) {
      HADAL_ASSIGN_OR_RETURN(first, rank.nccl.Send(value.data(), 4, 1, 1));
    }
    if (me != 1) HADAL_RETURN_IF_ERROR(rank.nccl.Exchange({}, 1, written.get(), exchange));
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("offered"));
    if (me == 1) rank.nccl.Progress();  // hears the offer
    all.arrive_and_wait();              // behind which rank 0 makes no progress until it is released
    if (me == 0) {
      while (!released) absl::SleepFor(absl::Microseconds(50));
    } else if (me == 1) {
      HADAL_ASSIGN_OR_RETURN(first, rank.nccl.Receive(value.data(), 4, 0, 1));
      static_cast<EmulatedQueues&>(rank.memory.device()->queues()).DelayMain(late);
      written.Record();
      HADAL_RETURN_IF_ERROR(rank.nccl.Exchange({}, 1, written.get(), exchange));
      stands = true;
      rank.memory.device()->FreeBytes();
      EXPECT_TRUE(released) << "the receive from rank 0 had not ended";
    } else {
      while (!stands) absl::SleepFor(absl::Microseconds(50));
      late->done = true;
      bool done = false;
      for (int i = 0; i < 200 && !done; ++i) {
        HADAL_ASSIGN_OR_RETURN(done, rank.nccl.Test(exchange[0]));
        absl::SleepFor(absl::Microseconds(50));
      }
      EXPECT_FALSE(done);
      released = true;
    }
    if (first.active()) HADAL_RETURN_IF_ERROR(rank.nccl.Wait(first, absl::Now() + kHang, "a value"));
    return AwaitAll(rank, exchange);
  });
}

TEST_F(NcclExchangesTest, RefusesBytesOnWhichTwoRanksDisagree) {
  const absl::Status status = RunNcclRanks(2, nccl_, [&](NcclRank& rank) -> absl::Status {
    const int me = rank.host.rank();
    const TransferBuffer value(rank.memory, {me, me});
    const MainEvent written(rank);
    const int before = nccl_.messages();
    std::vector<CommRequest> requests;
    const ExchangePart part = me == 0 ? ExchangePart{.peer = 1, .send = value.data(), .send_bytes = 4}
                                      : ExchangePart{.peer = 0, .receive = value.data(), .receive_bytes = 8};
    absl::Status exchanged = rank.nccl.Exchange({&part, 1}, 1, written.get(), requests);
    while (me == 1 && exchanged.ok()) exchanged = rank.nccl.Test(requests[0]).status();
    HADAL_RETURN_IF_ERROR(Collectives(rank.host, kHang).Barrier("refused"));
    rank.nccl.Withdraw();  // rank 0 has started its side, for which giving memory back would wait
    if (me == 0) return absl::OkStatus();
    EXPECT_EQ(exchanged.code(), absl::StatusCode::kInternal) << exchanged;
    EXPECT_THAT(std::string(exchanged.message()), HasSubstr("rank 0 sends 4 bytes and 8 are expected"));
    EXPECT_EQ(nccl_.messages(), before);
    return exchanged;
  });
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace hadal::testing
