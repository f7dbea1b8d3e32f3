#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "runtime/comm/collectives.h"
#include "tests/runtime/comm/communicator_conformance.h"

namespace hadal::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(30);

// Nobody may leave before the last has come: a ring of messages sent after the barrier would meet a rank that is still
// before it.
void Barrier(Communicator& c) {
  Collectives collectives(c, kHang);
  for (int late = 0; late < c.size(); ++late) {
    absl::Time arrived = absl::Now();
    if (c.rank() == late) {
      absl::SleepFor(absl::Milliseconds(5));
      arrived = absl::Now();
    }
    const absl::Status status = collectives.Barrier("a late rank");
    const absl::Time left = absl::Now();
    ASSERT_TRUE(status.ok()) << status;
    std::string late_arrival(reinterpret_cast<const char*>(&arrived), sizeof(arrived));
    ASSERT_TRUE(collectives.Broadcast(late_arrival, late, "arrival time").ok());
    std::copy_n(late_arrival.data(), sizeof(arrived), reinterpret_cast<char*>(&arrived));
    EXPECT_GE(left, arrived) << "left the barrier before rank " << late << " came";
  }
}

void BroadcastFromEveryRoot(Communicator& c) {
  Collectives collectives(c, kHang);
  for (int root = 0; root < c.size(); ++root) {
    for (const size_t length : {size_t{0}, size_t{1}, size_t{100000}}) {
      const std::string expected(length, static_cast<char>('a' + root));
      std::string data = c.rank() == root ? expected : "something else, of another length";
      const absl::Status status = collectives.Broadcast(data, root, "the plan");
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(data, expected);
    }
  }
}

void AllGatherOfUnequalBytes(Communicator& c) {
  Collectives collectives(c, kHang);
  const auto of_rank = [](int rank) { return std::string(rank * 37, static_cast<char>(rank)); };  // rank 0's is empty
  const auto gathered = collectives.AllGather(of_rank(c.rank()), "host names");
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  ASSERT_EQ(static_cast<int>(gathered->size()), c.size());
  for (int rank = 0; rank < c.size(); ++rank) EXPECT_EQ((*gathered)[rank], of_rank(rank));
}

void AllGatherOfDoubles(Communicator& c) {
  Collectives collectives(c, kHang);
  const auto of_rank = [](int rank) {
    std::vector<double> values(25000 + rank);  // 200 KB, as a rank's slice norms
    for (size_t i = 0; i < values.size(); ++i) values[i] = rank + 1.0 / static_cast<double>(i + 1);
    values[0] = std::numeric_limits<double>::infinity();
    values[1] = -0.0;
    return values;
  };
  const auto gathered = collectives.AllGather(std::span<const double>(of_rank(c.rank())), "norms");
  ASSERT_EQ(static_cast<int>(gathered->size()), c.size());
  for (int rank = 0; rank < c.size(); ++rank) EXPECT_EQ((*gathered)[rank], of_rank(rank)) << "of rank " << rank;
}

void AnyRank(Communicator& c) {
  Collectives collectives(c, kHang);
  EXPECT_THAT(collectives.AnyRank(false, "stop?").value_or(true), false);
  EXPECT_THAT(collectives.AnyRank(true, "stop?").value_or(false), true);
  for (int only = 0; only < c.size(); ++only) {
    const absl::StatusOr<bool> any = collectives.AnyRank(c.rank() == only, "stop?");
    EXPECT_TRUE(*any) << "only rank " << only << " voted for it";
  }
  EXPECT_THAT(collectives.AnyRank(false, "stop?").value_or(true), false);
}

// Every rank returns the lowest failing rank's error, in the same words. Afterwards the communicator still works.
void AllOkWithFailingRanks(Communicator& c) {
  Collectives collectives(c, kHang);
  for (int first = 0; first < c.size(); ++first) {
    absl::Status mine;
    if (c.rank() == first) mine = absl::DataLossError("shard 3: checksum differs");
    if (c.rank() > first && c.rank() % 2 == 1) mine = absl::NotFoundError("a later rank's trouble");
    const absl::Status all = collectives.AllOk(mine, "the checkpoint");
    const std::string words = "shard 3: checksum differs";
    const std::string expected = c.size() == 1 ? words : "rank " + std::to_string(first) + ": " + words;
    EXPECT_EQ(all.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(all.message(), expected);
    EXPECT_TRUE(IsCommonError(all));
  }
  const absl::Status alike = collectives.AllOk(absl::DataLossError("the same"), "the checkpoint");
  EXPECT_EQ(alike.message(), "the same");
  EXPECT_TRUE(IsCommonError(alike));
  EXPECT_TRUE(collectives.AllOk(absl::OkStatus(), "after failures").ok());
}

// An error of rank 0 is everybody's; what the others pass does not matter.
void BroadcastResult(Communicator& c) {
  Collectives collectives(c, kHang);
  const bool first = c.rank() == 0;
  absl::StatusOr<std::string> mine = first ? "step 3" : "another";
  const absl::StatusOr<std::string> found = collectives.BroadcastResult(mine, "a choice");
  EXPECT_EQ(found.value_or("none"), "step 3");
  if (first) mine = absl::DataLossError("all are damaged");
  const absl::StatusOr<std::string> missing = collectives.BroadcastResult(mine, "a choice");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(missing.status().message(), "all are damaged");
  EXPECT_TRUE(IsCommonError(missing.status()));
}

// Different collectives back to back do not mix up their messages.
void BackToBack(Communicator& c) {
  Collectives collectives(c, kHang);
  for (int i = 0; i < 20; ++i) {
    std::string data = c.rank() == i % c.size() ? std::to_string(i) : "";
    ASSERT_TRUE(collectives.Broadcast(data, i % c.size(), "mixed").ok());
    ASSERT_EQ(data, std::to_string(i));
    const auto gathered = collectives.AllGather(std::to_string(1000 * c.rank() + i), "mixed");
    for (int rank = 0; rank < c.size(); ++rank) ASSERT_EQ((*gathered)[rank], std::to_string(1000 * rank + i));
    ASSERT_EQ(collectives.AnyRank(i % 2 == 0, "mixed").value_or(i % 2 != 0), i % 2 == 0);
  }
}

// One rank does not come: the others' error names the purpose.
void ARankThatStaysAway(Communicator& c) {
  if (c.size() == 1 || c.rank() == 0) return;
  Collectives collectives(c, absl::Milliseconds(100));
  const absl::Status status = collectives.Barrier("the end of step 12");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the end of step 12"));
  // The transport's failure does not hide a rank's own.
  EXPECT_EQ(collectives.AllOk(absl::DataLossError("mine"), "the checkpoint"), absl::DataLossError("mine"));
}

template <void (*kCase)(Communicator&)>
void OnHost(Communicator& c, const Stream& /*memory*/) {
  kCase(c);
}

constexpr ConformanceCase kCases[] = {
    {"Barrier", OnHost<Barrier>},
    {"BroadcastFromEveryRoot", OnHost<BroadcastFromEveryRoot>},
    {"AllGatherOfUnequalBytes", OnHost<AllGatherOfUnequalBytes>},
    {"AllGatherOfDoubles", OnHost<AllGatherOfDoubles>},
    {"AnyRank", OnHost<AnyRank>},
    {"AllOkWithFailingRanks", OnHost<AllOkWithFailingRanks>},
    {"BroadcastResult", OnHost<BroadcastResult>},
    {"BackToBack", OnHost<BackToBack>},
    {"ARankThatStaysAway", OnHost<ARankThatStaysAway>},
};

}  // namespace

std::span<const ConformanceCase> CollectivesCases() { return kCases; }

}  // namespace hadal::testing
