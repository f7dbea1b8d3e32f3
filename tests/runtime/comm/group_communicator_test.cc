#include "runtime/comm/group_communicator.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/runtime/comm/communicator_conformance.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(30);

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
