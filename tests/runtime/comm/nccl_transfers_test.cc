// The transfers that a rank has posted, from Post to End, on two emulated devices with a link each way.
#include "runtime/comm/nccl_transfers.h"

#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/stream.h"
#include "tests/runtime/comm/transfer_buffer.h"
#include "tests/support/emulated_nccl.h"
#include "tests/support/emulated_queues.h"

namespace hadal::testing {
namespace {

using ::testing::ElementsAre;
using State = NcclTransfer::State;

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr int kMost = NcclTransfers::kMostUnderWay;

// One of the two ranks.
struct Rank {
  Rank(EmulatedNccl& nccl, int self)
      : device(3 + self),
        library(nccl.LibraryFor(device)),
        stream(Stream::On(device, 1)),
        transfers(device),
        to(*library, device, {0, 1}, self, self == 0 ? NcclLink::Direction::kUp : NcclLink::Direction::kDown),
        from(*library, device, {0, 1}, self, self == 1 ? NcclLink::Direction::kUp : NcclLink::Direction::kDown),
        peer(1 - self) {}

  // A value of this rank's, in its device's memory.
  TransferBuffer Value(int32_t value) const { return {stream, {value}}; }
  int64_t Post(const TransferBuffer& value, bool is_send) {
    return transfers
        .Post({.is_send = is_send, .data = static_cast<std::byte*>(value.data()), .bytes = value.bytes(), .peer = peer})
        .value();
  }
  absl::Status Start(int64_t id) { return transfers.Start(id, transfers[id].is_send ? to : from); }

  EmulatedDevice device;
  const std::unique_ptr<NcclLibrary> library;
  const Stream stream;
  NcclTransfers transfers;
  NcclLink to, from;
  const int peer;
};

class NcclTransfersTest : public ::testing::Test {
 protected:
  NcclTransfersTest() {
    // Rank 0's link to rank 1 first, on both.
    HADAL_CHECK_EQ(zero_.library->GetUniqueId(ids_[0]), kNcclSuccess);
    HADAL_CHECK_EQ(one_.library->GetUniqueId(ids_[1]), kNcclSuccess);
    std::thread other([this] { Open(one_, one_.from, one_.to); });
    Open(zero_, zero_.to, zero_.from);
    other.join();
  }

  void Open(Rank& rank, NcclLink& first, NcclLink& second) const {
    const absl::StatusOr<std::byte*> scratch = rank.device.Allocate(256);
    EXPECT_TRUE(rank.transfers.MakeEnds().ok());
    const auto alive = [] { return absl::OkStatus(); };
    EXPECT_TRUE(first.Open(ids_[0], Deadline(kHang), alive).ok());
    EXPECT_TRUE(second.Open(ids_[1], Deadline(kHang), alive).ok());
    for (NcclLink* const link : {&first, &second}) {
      const NcclLink::Message message{.is_send = link == &rank.to, .peer = rank.peer, .data = *scratch, .bytes = 256};
      EXPECT_TRUE(link->MoveFirst({&message, 1}, Deadline(kHang), alive).ok());
    }
    rank.device.Free(*scratch);
  }
  // Looks at what has come until no more than so many are under way.
  static void AwaitEnds(Rank& rank, size_t under_way = 0) {
    for (const Deadline deadline(kHang); rank.transfers.under_way() > under_way && !deadline.Passed();) {
      rank.transfers.NoteArrivals();
    }
    EXPECT_EQ(rank.transfers.under_way(), under_way);
  }

  EmulatedNccl nccl_{8};
  NcclUniqueId ids_[2];
  Rank zero_{nccl_, 0}, one_{nccl_, 1};
};

TEST_F(NcclTransfersTest, ATransferIsPostedThenStartedThenDone) {
  const TransferBuffer sent = zero_.Value(5), received = one_.Value(-1);
  const int64_t send = zero_.Post(sent, true), receive = one_.Post(received, false);
  EXPECT_TRUE(zero_.transfers[send].in_use);
  EXPECT_EQ(zero_.transfers[send].state, State::kPosted);
  EXPECT_EQ(zero_.transfers.under_way(), 0u);
  ASSERT_TRUE(zero_.Start(send).ok());
  EXPECT_EQ(zero_.transfers[send].state, State::kStarted);
  EXPECT_EQ(zero_.transfers.under_way(), 1u);
  for (int i = 0; i < 20; ++i) zero_.transfers.NoteArrivals();
  EXPECT_EQ(zero_.transfers[send].state, State::kStarted) << "alone";
  ASSERT_TRUE(one_.Start(receive).ok());
  AwaitEnds(zero_);
  AwaitEnds(one_);
  EXPECT_EQ(zero_.transfers[send].state, State::kDone);
  EXPECT_EQ(one_.transfers[receive].state, State::kDone);
  EXPECT_THAT(received.values(), ElementsAre(5));
}

// By now, that is: not behind what comes later.
TEST_F(NcclTransfersTest, IsReadyWhenWhatWasInTheMainQueueIsDone) {
  auto& queues = zero_.device.emulated_queues();
  const TransferBuffer value = zero_.Value(1);
  ASSERT_TRUE(zero_.transfers.Reserve(2).ok());
  const int64_t before = zero_.Post(value, true);
  const auto late = std::make_shared<HeldWork>();
  queues.DelayMain(late);
  const int64_t behind = zero_.Post(value, true);
  EXPECT_TRUE(zero_.transfers.IsReady(before));
  EXPECT_FALSE(zero_.transfers.IsReady(behind));
  late->done = true;
  EXPECT_TRUE(zero_.transfers.IsReady(behind));
}

TEST_F(NcclTransfersTest, AMessageWaitsOnItsDeviceForWhatIsBeforeIt) {
  const TransferBuffer sent = zero_.Value(5), received = one_.Value(-1);
  const auto late = std::make_shared<HeldWork>();
  ASSERT_TRUE(zero_.transfers.Reserve(1).ok());
  zero_.device.emulated_queues().DelayMain(late);
  ASSERT_TRUE(zero_.Start(zero_.Post(sent, true)).ok());
  ASSERT_TRUE(one_.Start(one_.Post(received, false)).ok());
  for (int i = 0; i < 20; ++i) one_.transfers.NoteArrivals();
  EXPECT_EQ(one_.transfers.under_way(), 1u);
  late->done = true;
  AwaitEnds(one_);
  AwaitEnds(zero_);
}

// Each way for itself; as one ends there is room for another. What was reserved is there without a standstill.
TEST_F(NcclTransfersTest, SoManyAreUnderWayEachWay) {
  const TransferBuffer value = zero_.Value(1);
  std::vector<TransferBuffer> places;
  for (int i = 0; i <= kMost; ++i) places.push_back(one_.Value(-1));
  for (Rank* rank : {&zero_, &one_}) ASSERT_TRUE(rank->transfers.Reserve(2 * kMost + 1).ok());
  nccl_.StallAfter(nccl_.messages());
  int told = 0;
  for (Rank* rank : {&zero_, &one_}) rank->device.OnStandstill([&told] { ++told; });
  std::vector<int64_t> sends, receives;
  for (int i = 0; i <= kMost; ++i) {
    sends.push_back(zero_.Post(value, true));
    receives.push_back(one_.Post(places[i], false));
  }
  for (int i = 0; i < kMost; ++i) {
    EXPECT_TRUE(zero_.transfers.HasRoom(true));
    ASSERT_TRUE(zero_.Start(sends[i]).ok());
    ASSERT_TRUE(one_.Start(receives[i]).ok());
  }
  EXPECT_FALSE(zero_.transfers.HasRoom(true));
  EXPECT_TRUE(zero_.transfers.HasRoom(false));
  EXPECT_FALSE(one_.transfers.HasRoom(false));
  EXPECT_TRUE(one_.transfers.HasRoom(true));

  nccl_.StallAfter(nccl_.messages() + 1);
  AwaitEnds(zero_, kMost - 1);
  EXPECT_EQ(zero_.transfers[sends[0]].state, State::kDone) << "one after another";
  EXPECT_EQ(zero_.transfers[sends[1]].state, State::kStarted);
  EXPECT_TRUE(zero_.transfers.HasRoom(true));
  AwaitEnds(one_, kMost - 1);
  ASSERT_TRUE(zero_.Start(sends[kMost]).ok());
  ASSERT_TRUE(one_.Start(receives[kMost]).ok());
  EXPECT_FALSE(zero_.transfers.HasRoom(true));
  EXPECT_EQ(told, 0);

  nccl_.StallAfter(nccl_.messages() + 2 * kMost);
  AwaitEnds(zero_);
  AwaitEnds(one_);
  for (Rank* rank : {&zero_, &one_}) rank->device.OnStandstill(nullptr);
}

// The ends of messages are enough for both ways at their most at once.
TEST_F(NcclTransfersTest, BothWaysAreFullAtOnce) {
  const TransferBuffer values[] = {zero_.Value(0), one_.Value(1)};
  std::vector<TransferBuffer> places;
  for (Rank* rank : {&zero_, &one_}) {
    ASSERT_TRUE(rank->transfers.Reserve(2 * kMost).ok());
    for (int i = 0; i < kMost; ++i) places.push_back(rank->Value(-1));
  }
  for (int i = 0; i < kMost; ++i) {
    ASSERT_TRUE(zero_.Start(zero_.Post(values[0], true)).ok());
    ASSERT_TRUE(one_.Start(one_.Post(values[1], true)).ok());
    ASSERT_TRUE(zero_.Start(zero_.Post(places[i], false)).ok());
    ASSERT_TRUE(one_.Start(one_.Post(places[kMost + i], false)).ok());
  }
  AwaitEnds(zero_);
  AwaitEnds(one_);
  for (int i = 0; i < 2 * kMost; ++i) EXPECT_THAT(places[i].values(), ElementsAre(i < kMost ? 1 : 0));
}

// How many slots are made and used again: NcclStandstill.MakesNothingForTransfersThatWereReserved.
TEST_F(NcclTransfersTest, ATransferStaysWhereItIs) {
  const TransferBuffer value = zero_.Value(1);
  const int64_t first = zero_.Post(value, true);
  const NcclTransfer* const place = &zero_.transfers[first];
  std::set<int64_t> ids = {first};
  for (int i = 1; i < 50; ++i) ids.insert(zero_.Post(value, true));
  EXPECT_EQ(ids.size(), 50u) << "one each";
  EXPECT_EQ(&zero_.transfers[first], place);
}

// The message fails as its second side starts it: that side is not under way, nor is what comes behind the first.
TEST_F(NcclTransfersTest, WhatALinkCannotStartIsAnErrorAndNotUnderWay) {
  const TransferBuffer sent = zero_.Value(5), received = one_.Value(-1);
  for (Rank* rank : {&zero_, &one_}) ASSERT_TRUE(rank->transfers.Reserve(2).ok());
  nccl_.FailAfter(nccl_.messages());
  ASSERT_TRUE(zero_.Start(zero_.Post(sent, true)).ok());
  EXPECT_EQ(one_.Start(one_.Post(received, false)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(one_.transfers.under_way(), 0u);
  EXPECT_EQ(zero_.Start(zero_.Post(sent, true)).code(), absl::StatusCode::kUnavailable);
  for (int i = 0; i < 20; ++i) zero_.transfers.NoteArrivals();
  EXPECT_EQ(zero_.transfers.under_way(), 1u) << "the first: nothing tells its end";
  NcclLink* const links[] = {&zero_.to, &zero_.from, &one_.to, &one_.from};
  NcclLink::AbortAll(links);  // before the memory goes
}

// Exit code 1, not a lost peer's 6, for which launchers start a job again.
TEST_F(NcclTransfersTest, AFailureOfCudaWithinNcclIsThisRanksOwn) {
  const TransferBuffer sent = zero_.Value(5), received = one_.Value(-1);
  for (Rank* rank : {&zero_, &one_}) ASSERT_TRUE(rank->transfers.Reserve(1).ok());
  nccl_.FailAfter(nccl_.messages(), kNcclUnhandledCudaError);
  ASSERT_TRUE(zero_.Start(zero_.Post(sent, true)).ok());
  const absl::Status status = one_.Start(one_.Post(received, false));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_NE(status.message().find("unhandled cuda error"), std::string::npos) << status;
  NcclLink* const links[] = {&zero_.to, &zero_.from, &one_.to, &one_.from};
  NcclLink::AbortAll(links);  // before the memory goes
}

}  // namespace
}  // namespace hadal::testing
