#include "runtime/comm/in_process_communicator.h"

#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/group_communicator.h"
#include "runtime/status_macros.h"
#include "tests/runtime/comm/communicator_conformance.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(30);

class InProcessConformance : public ::testing::TestWithParam<testing::ConformanceCase> {};

TEST_P(InProcessConformance, Holds) {
  for (const int size : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(size);
    InProcessWorld world(size);
    const absl::Status status = world.Run([&](Communicator& communicator) {
      GetParam().run(communicator, Stream::Cpu(1));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    ASSERT_FALSE(HasFailure()) << "with " << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, InProcessConformance, ::testing::ValuesIn(testing::PointToPointCases()),
                         testing::ConformanceCaseName);
INSTANTIATE_TEST_SUITE_P(Collectives, InProcessConformance, ::testing::ValuesIn(testing::CollectivesCases()),
                         testing::ConformanceCaseName);

// What MPI's buffering hides: a send is not done before its receive is posted, however small it is.
TEST(InProcessCommunicator, ASendWaitsForItsReceive) {
  InProcessWorld world(2);
  Communicator& sender = world.communicator(0);
  Communicator& receiver = world.communicator(1);
  const char sent = 'x';
  char received = 0;
  CommRequest send = sender.Send(&sent, 1, 1, 0).value();
  EXPECT_FALSE(sender.Test(send).value());
  CommRequest other_tag = receiver.Receive(&received, 1, 0, 1).value();
  EXPECT_FALSE(sender.Test(send).value());
  EXPECT_FALSE(receiver.Test(other_tag).value());
  CommRequest receive = receiver.Receive(&received, 1, 0, 0).value();
  EXPECT_TRUE(sender.Test(send).value());
  EXPECT_TRUE(receiver.Test(receive).value());
  EXPECT_EQ(received, 'x');
}

TEST(InProcessCommunicator, WritesNothingOfAMessageThatIsTooLong) {
  InProcessWorld world(1);
  Communicator& c = world.communicator(0);
  const int64_t sent[] = {1, 2, 3};
  int64_t received[] = {-1, -1, -1};
  CommRequest requests[] = {c.Send(sent, sizeof(sent), 0, 0).value(), c.Receive(received, 8, 0, 0).value()};
  EXPECT_TRUE(c.Test(requests[0]).value());
  const absl::Status status = c.Test(requests[1]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(received, ::testing::Each(-1));
}

TEST(InProcessCommunicator, AWaitIsToldOfWhileItLastsAndNoLonger) {
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& c) -> absl::Status {
    char byte = 'x';
    if (c.rank() == 1) {
      HADAL_ASSIGN_OR_RETURN(CommRequest receive, c.Receive(&byte, 1, 0, 0));
      HADAL_RETURN_IF_ERROR(c.Wait(receive, absl::Now() + kHang, "a late message"));
      EXPECT_FALSE(c.CurrentWait().has_value());
      return absl::OkStatus();
    }
    while (!world.communicator(1).CurrentWait().has_value()) absl::SleepFor(absl::Milliseconds(1));
    const WaitInProgress wait = *world.communicator(1).CurrentWait();
    EXPECT_LE(wait.since_seconds, MonotonicSeconds() - 0.01) << "shorter ones are not shown";
    EXPECT_THAT(wait.description, HasSubstr("receive from rank 0, tag 0"));
    HADAL_ASSIGN_OR_RETURN(CommRequest send, c.Send(&byte, 1, 1, 0));
    return c.Wait(send, absl::Now() + kHang, "its receive");
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(InProcessCommunicator, APassengersWaitIsItsCarriersAndSoIsAWithdrawal) {
  InProcessWorld world(1), other(2);
  Communicator &carrier = world.communicator(0), &passenger = other.communicator(0);
  carrier.Carry(&passenger);
  char byte = 0;
  std::thread waiting([&] {
    CommRequest receive = passenger.Receive(&byte, 1, 1, 0).value();
    EXPECT_FALSE(passenger.Wait(receive, absl::Now() + kHang, "a message that never comes").ok());
  });
  while (!passenger.CurrentWait().has_value()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(carrier.CurrentWait().has_value());
  other.communicator(1).Abort(1);
  waiting.join();
  InProcessWorld next(1);
  carrier.Carry(&next.communicator(0));
  carrier.Withdraw();
  EXPECT_EQ(next.communicator(0).Send(&byte, 1, 0, 0).status().code(), absl::StatusCode::kUnavailable);
}

// Whoever waits hears of it at once, and of the first of several.
TEST(InProcessCommunicator, AnAbortEndsWaitsAndTheFirstOneIsTheReason) {
  InProcessWorld world(3);
  char byte = 0;
  absl::Status ended;
  absl::Duration took;
  std::thread waiting([&] {
    Communicator& c = world.communicator(2);
    const absl::Time start = absl::Now();
    CommRequest receive = c.Receive(&byte, 1, 0, 0).value();
    ended = c.Wait(receive, absl::Now() + 4 * kHang, "a message that never comes");
    took = absl::Now() - start;
  });
  while (!world.communicator(2).CurrentWait().has_value()) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(20));  // asleep until it is told
  world.communicator(1).Abort(5);
  world.communicator(0).Abort(7);
  waiting.join();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("aborted by rank 1 with exit code 5"));
  EXPECT_LT(took, kHang);
  EXPECT_THAT(std::string(world.communicator(0).Send(&byte, 1, 1, 0).status().message()), HasSubstr("by rank 1"));
}

// Rank 1 calls other collectives than rank 0: what arrives is no list of two entries.
TEST(InProcessCommunicator, CollectivesThatDoNotMeetAreAnError) {
  InProcessWorld world(2);
  const absl::Status status = world.Run([](Communicator& c) -> absl::Status {
    Collectives collectives(c, kHang);
    if (c.rank() == 0) {
      const absl::Status gathered = collectives.AllGather("mine", "a test").status();
      EXPECT_EQ(gathered.code(), absl::StatusCode::kInternal) << gathered;
      EXPECT_THAT(std::string(gathered.message()), HasSubstr("1 of 2 ranks' entries arrived"));
      return absl::OkStatus();
    }
    std::string nothing, text;
    HADAL_RETURN_IF_ERROR(collectives.Broadcast(nothing, /*root=*/1, "a test"));
    return collectives.Broadcast(text, /*root=*/0, "a test");
  });
  EXPECT_TRUE(status.ok()) << status;
}

// A rank that gave up has its buffers back: what arrives later must not write into them.
TEST(InProcessCommunicator, TakesBackBuffersAfterADeadline) {
  InProcessWorld world(2);
  Communicator& impatient = world.communicator(0);
  Communicator& late = world.communicator(1);
  auto buffer = std::make_unique<int>(5);
  auto source = std::make_unique<int>(6);
  CommRequest receive = impatient.Receive(buffer.get(), sizeof(int), 1, 0).value();
  ASSERT_TRUE(impatient.Send(source.get(), sizeof(int), 1, 0).ok());
  EXPECT_FALSE(impatient.Wait(receive, absl::InfinitePast(), "nothing").ok());
  EXPECT_EQ(*buffer, 5);
  buffer.reset();
  source.reset();
  int value = 7;
  CommRequest late_send = late.Send(&value, sizeof(value), 0, 0).value();
  CommRequest late_receive = late.Receive(&value, sizeof(value), 0, 0).value();
  EXPECT_FALSE(late.Test(late_send).value());
  EXPECT_FALSE(late.Test(late_receive).value());
}

// Run's error is the cause, not one of its consequences on other ranks.
TEST(InProcessWorld, ReturnsTheFirstError) {
  InProcessWorld world(5);
  const absl::Status status = world.Run([](Communicator& c) {
    if (c.rank() == 4) return absl::DataLossError("the cause");
    return Collectives(c, kHang).Barrier("the end");
  });
  EXPECT_EQ(status, absl::DataLossError("the cause"));
}

TEST(InProcessCommunicatorDeathTest, RefusesBrokenArguments) {
  InProcessWorld world(2);
  char byte = 0;
  EXPECT_DEATH((void)world.communicator(0).Send(&byte, 1, 2, 0), "peer");
  EXPECT_DEATH((void)world.communicator(0).Send(&byte, 1, -1, 0), "peer >= 0");
  EXPECT_DEATH((void)world.communicator(0).Receive(&byte, 1, 1, -1), "tag >= 0");
  EXPECT_DEATH((void)world.communicator(0).Send(&byte, -1, 1, 0), "bytes");
  EXPECT_DEATH((void)world.communicator(0).Receive(&byte, 1, 1, Communicator::kTagLimit), "tag");
}

// Member i of group g is rank groups·i + g: no rank but rank 0 has the same number in the world and in its group.
GroupCommunicator Interleaved(Communicator& world, int groups, int size) {
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(groups * i + world.rank() % groups);
  return GroupCommunicator(world, std::move(members), 1);
}

class GroupConformance : public ::testing::TestWithParam<testing::ConformanceCase> {};

TEST_P(GroupConformance, HoldsInEveryGroupAtOnce) {
  if (std::string(GetParam().name) == "DeadlineNamesTheTransfer") return;  // names the world's ranks: the next test
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    constexpr int kGroups = 2;
    InProcessWorld world(kGroups * size);
    const absl::Status status = world.Run([&](Communicator& communicator) {
      GroupCommunicator group = Interleaved(communicator, kGroups, size);
      GetParam().run(group, Stream::Cpu(1));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    ASSERT_FALSE(HasFailure()) << "with " << size << " ranks a group";
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, GroupConformance, ::testing::ValuesIn(testing::PointToPointCases()),
                         testing::ConformanceCaseName);
INSTANTIATE_TEST_SUITE_P(Collectives, GroupConformance, ::testing::ValuesIn(testing::CollectivesCases()),
                         testing::ConformanceCaseName);

TEST(GroupCommunicator, ErrorsNameTheRanksOfTheWorld) {
  InProcessWorld world(4);
  GroupCommunicator group(world.communicator(3), {1, 3}, 1);
  EXPECT_EQ(group.rank(), 1);
  EXPECT_EQ(group.size(), 2);
  char byte = 0;
  CommRequest receive = group.Receive(&byte, 1, 0, 5).value();
  const absl::Status status = group.Wait(receive, absl::InfinitePast(), "a byte");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 3, receive from rank 1, tag 5"));
}

TEST(GroupCommunicator, GroupsOfTheSameRanksHaveTheirOwnCollectiveTags) {
  InProcessWorld world(2);
  GroupCommunicator sender(world.communicator(0), {0, 1}, 1);
  GroupCommunicator receiver(world.communicator(1), {0, 1}, 1), other(world.communicator(1), {0, 1}, 2);
  const char sent = 'x';
  char received = 0;
  CommRequest send = sender.Send(&sent, 1, 1, Communicator::kFirstCollectiveTag).value();
  CommRequest others = other.Receive(&received, 1, 0, Communicator::kFirstCollectiveTag).value();
  EXPECT_FALSE(sender.Test(send).value());
  CommRequest receive = receiver.Receive(&received, 1, 0, Communicator::kFirstCollectiveTag).value();
  EXPECT_TRUE(sender.Test(send).value());
  EXPECT_TRUE(receiver.Test(receive).value());
  EXPECT_FALSE(other.Test(others).value());
}

// A rank that is ahead in its row must not be heard by another collective: rows, columns and the world overlap freely.
TEST(GroupCommunicator, CollectivesOfRowsColumnsAndTheWorldDoNotMeet) {
  constexpr int kSide = 3;
  InProcessWorld world(kSide * kSide);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const int row = communicator.rank() / kSide, column = communicator.rank() % kSide;
    std::vector<int> in_row, in_column;
    for (int i = 0; i < kSide; ++i) {
      in_row.push_back(row * kSide + i);
      in_column.push_back(i * kSide + column);
    }
    GroupCommunicator row_group(communicator, in_row, 1), column_group(communicator, in_column, 2);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const std::string mine = std::to_string(communicator.rank());
      HADAL_ASSIGN_OR_RETURN(const auto row_all, Collectives(row_group, kHang).AllGather(mine, "a row"));
      EXPECT_THAT(row_all,
                  ElementsAre(std::to_string(in_row[0]), std::to_string(in_row[1]), std::to_string(in_row[2])));
      HADAL_ASSIGN_OR_RETURN(const bool any, Collectives(communicator, kHang).AnyRank(repeat == 3, "a vote"));
      EXPECT_EQ(any, repeat == 3);
      HADAL_ASSIGN_OR_RETURN(const auto column_all, Collectives(column_group, kHang).AllGather(mine, "a column"));
      EXPECT_THAT(column_all, ElementsAre(std::to_string(in_column[0]), std::to_string(in_column[1]),
                                          std::to_string(in_column[2])));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace hadal
