#include "tests/support/emulated_nccl.h"

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::EmulatedDevice;
using testing::EmulatedNccl;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A communicator of ranks with a device, a queue and some memory each, called from one thread.
class EmulatedNcclTest : public ::testing::Test {
 protected:
  struct Rank {
    explicit Rank(EmulatedNccl& nccl, uint64_t seed) : device(seed), library(nccl.LibraryFor(device)) {
      memory = device.Allocate(256).value();
      queue = device.queues().MakeQueue().value();
      event = device.queues().MakeEvent().value();
    }
    ~Rank() {
      library->Abort(comm);
      device.queues().DestroyEvent(event);
      device.queues().DestroyQueue(queue);
      device.Free(memory);
    }

    NcclResult State() {
      NcclResult state = kNcclSuccess;
      EXPECT_EQ(library->AsyncError(comm, state), kNcclSuccess);
      return state;
    }
    void Settle() {
      for (int i = 0; i < 10 && State() == kNcclInProgress; ++i) {
      }
    }
    NcclResult Begin(bool send, int64_t bytes, int peer) {
      device.queues().Record(event, DeviceQueues::kMain);
      device.queues().Await(queue, event);
      return send ? library->Send(comm, memory, bytes, peer, queue)
                  : library->Receive(comm, memory, bytes, peer, queue);
    }
    void Send(int64_t bytes, int peer) {
      Begin(true, bytes, peer);
      Settle();
    }
    void Receive(int64_t bytes, int peer) {
      Begin(false, bytes, peer);
      Settle();
    }

    EmulatedDevice device;
    std::unique_ptr<NcclLibrary> library;
    NcclComm comm = nullptr;
    std::byte* memory = nullptr;
    DeviceQueues::Queue queue = nullptr;
    DeviceQueues::Event event = nullptr;
  };

  void Join(int ranks) {
    NcclUniqueId id{};
    for (int rank = 0; rank < ranks; ++rank) {
      Rank& made = *ranks_.emplace_back(std::make_unique<Rank>(nccl_, rank + 1));
      if (rank == 0) {
        ASSERT_EQ(made.library->GetUniqueId(id), kNcclSuccess);
      }
      ASSERT_EQ(made.library->CommInit(made.comm, id, {rank, ranks}, 4), kNcclInProgress);
      made.Settle();
      EXPECT_EQ(made.State(), rank + 1 < ranks ? kNcclInProgress : kNcclSuccess) << "joined alone";
    }
    for (const auto& rank : ranks_) rank->Settle();
  }

  EmulatedNccl nccl_{9};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// The emulation's own strictness: calls of the two sides that do not match end as an error, with both lists.
TEST_F(EmulatedNcclTest, FindsCallsThatDoNotMatch) {
  Join(2);
  ranks_[0]->Send(64, 1);
  ranks_[1]->Receive(64, 0);
  ranks_[0]->Send(32, 1);
  EXPECT_THAT(nccl_.TakeMisuses(), IsEmpty());
  ranks_[1]->Receive(16, 0);  // not what was sent
  EXPECT_THAT(nccl_.TakeMisuses(), ElementsAre(AllOf(HasSubstr("rank 0: send 64 bytes to 1, send 32 bytes to 1"),
                                                     HasSubstr("rank 1: receive 64 bytes from 0, receive 16"))));
  EXPECT_EQ(ranks_[0]->State(), kNcclInvalidUsage);
}

TEST_F(EmulatedNcclTest, FindsRanksThatWaitInACircle) {
  Join(3);
  ranks_[0]->Send(8, 2);
  ranks_[0]->Send(8, 1);
  ranks_[1]->Receive(8, 0);
  ranks_[1]->Send(8, 2);
  ranks_[2]->Receive(8, 1);
  EXPECT_THAT(nccl_.TakeMisuses(), ElementsAre(HasSubstr("in a circle")));
}

// Two ranks that each send first wait for each other, but not in a group.
TEST_F(EmulatedNcclTest, AGroupsMessagesRunInAnyOrder) {
  Join(2);
  const int groups = nccl_.groups(), messages = nccl_.messages();
  for (int rank = 0; rank < 2; ++rank) {
    Rank& one = *ranks_[rank];
    one.library->GroupStart();
    EXPECT_EQ(one.Begin(true, 8, 1 - rank), kNcclSuccess);
    EXPECT_EQ(one.library->Receive(one.comm, one.memory + 8, 8, 1 - rank, one.queue), kNcclSuccess);
    EXPECT_EQ(nccl_.groups() - groups, rank) << "a call in a group starts nothing";
    EXPECT_EQ(one.library->GroupEnd(), kNcclInProgress);
    one.Settle();
  }
  EXPECT_EQ(nccl_.groups() - groups, 2);
  for (int poll = 0; poll < 100; ++poll) ranks_[0]->State();
  EXPECT_EQ(nccl_.messages() - messages, 2);
  EXPECT_THAT(nccl_.TakeMisuses(), IsEmpty());
  for (int rank = 0; rank < 2; ++rank) ranks_[rank]->Send(8, 1 - rank);
  EXPECT_THAT(nccl_.TakeMisuses(), ElementsAre(HasSubstr("in a circle")));
}

TEST_F(EmulatedNcclTest, RefusesACallBeforeThePreviousOneHasSettled) {
  Join(2);
  const int before = nccl_.calls();
  for (int call = 0; call < 20 && nccl_.TakeMisuses().empty(); ++call) ranks_[0]->Begin(true, 8, 1);
  EXPECT_EQ(ranks_[0]->State(), kNcclInvalidUsage);
  EXPECT_GT(nccl_.calls(), before);
}

}  // namespace
}  // namespace hadal
