#include "pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/random.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

PartitionProblem Problem(std::vector<double> cost, int stages, int chunks = 1) {
  PartitionProblem problem{
      .stages = stages, .chunks = chunks, .cost = std::move(cost), .cut_allowed_before = {}, .bytes = {}};
  problem.cut_allowed_before.assign(problem.cost.size(), true);
  return problem;
}

// What the best split must reach, by trying every one: (largest piece, Σ cost²); infinite where none is legal.
struct Best {
  double largest = kInfinity;
  double squares = kInfinity;
};
void TryAll(const PartitionProblem& problem, int begin, int pieces, double largest, double squares, Best& best) {
  const int n = static_cast<int>(problem.cost.size());
  if (pieces == 0) {
    if (begin != n) return;
    if (largest < best.largest || (largest == best.largest && squares < best.squares)) best = {largest, squares};
    return;
  }
  double cost = 0;
  int64_t bytes = 0;
  for (int end = begin + 1; end <= n; ++end) {
    cost += problem.cost[end - 1];
    bytes += problem.bytes.empty() ? 0 : problem.bytes[end - 1];
    if (!problem.bytes.empty() && bytes > problem.bytes_limit) return;
    if (end < n && !problem.cut_allowed_before[end]) continue;
    TryAll(problem, end, pieces - 1, std::max(largest, cost), squares + cost * cost, best);
  }
}

// Whole numbers below `limit`, so that sums are exact.
int Draw(uint32_t stream, uint64_t index, int limit) {
  return static_cast<int>(UniformAt(5, RandomSite::kSampling, stream, index) * limit);
}

PartitionProblem RandomProblem(uint32_t stream) {
  const int n = 1 + Draw(stream, 0, 12);
  PartitionProblem problem = Problem({}, 1 + Draw(stream, 1, 4), 1 + Draw(stream, 2, 2));
  const bool limited = Draw(stream, 3, 2) == 1;
  problem.bytes_limit = 20 + Draw(stream, 4, 30);
  for (int i = 0; i < n; ++i) {
    problem.cost.push_back(Draw(stream, 10 + 4 * i, 12));
    problem.cut_allowed_before.push_back(Draw(stream, 11 + 4 * i, 4) != 0);
    if (limited) problem.bytes.push_back(Draw(stream, 12 + 4 * i, 20));
  }
  return problem;
}

TEST(PartitionTest, IsTheBestOfAllSplits) {
  int solved = 0, refused = 0;
  for (uint32_t stream = 0; stream < 3000; ++stream) {
    const PartitionProblem problem = RandomProblem(stream);
    Best best;
    TryAll(problem, 0, problem.pieces(), 0, 0, best);
    const auto partition = MakePartition(problem);
    ASSERT_EQ(partition.ok(), best.largest < kInfinity) << "stream " << stream << ": " << partition.status();
    if (!partition.ok()) {
      ++refused;
      continue;
    }
    ++solved;
    double squares = 0;
    for (const double cost : partition->piece_cost) squares += cost * cost;
    EXPECT_EQ(partition->bottleneck_cost, best.largest) << "stream " << stream;
    EXPECT_EQ(squares, best.squares) << "stream " << stream;
    EXPECT_LE(partition->lower_bound, best.largest);
    for (int g = 0; g < problem.pieces(); ++g) {
      const int begin = partition->borders[g], end = partition->borders[g + 1];
      ASSERT_LT(begin, end);
      EXPECT_TRUE(begin == 0 || problem.cut_allowed_before[begin]);
      EXPECT_EQ(partition->piece_cost[g],
                std::accumulate(&problem.cost[begin], &problem.cost[begin] + (end - begin), 0.0));
    }
  }
  EXPECT_GT(solved, 1000);
  EXPECT_GT(refused, 300);
}

TEST(PartitionTest, FractionalCostsReachTheOptimumToRounding) {
  for (uint32_t stream = 0; stream < 300; ++stream) {
    PartitionProblem problem = Problem({}, 4);
    for (int i = 0; i < 14; ++i) problem.cost.push_back(UniformAt(7, RandomSite::kSampling, stream, i));
    problem.cut_allowed_before.assign(problem.cost.size(), true);
    Best best;
    TryAll(problem, 0, 4, 0, 0, best);
    const auto partition = MakePartition(problem);
    ASSERT_TRUE(partition.ok()) << partition.status();
    EXPECT_NEAR(partition->bottleneck_cost, best.largest, 1e-12);
  }
}

TEST(PartitionTest, BalancesTheStagesThatAreNotTheBottleneck) {
  const auto partition = MakePartition(Problem({10, 1, 1, 1, 1, 1, 1}, 4));
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_THAT(partition->piece_cost, ElementsAre(10, 2, 2, 2));
  EXPECT_THAT(partition->borders, ElementsAre(0, 1, 3, 5, 7));
  EXPECT_EQ(partition->bottleneck_cost, 10);
  EXPECT_EQ(partition->lower_bound, 10);
}

TEST(PartitionTest, RanksAddUpTheirChunks) {
  const auto partition = MakePartition(Problem({1, 2, 3, 4, 5, 6}, 3, 2));
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_THAT(partition->piece_cost, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(partition->rank_cost, ElementsAre(5, 7, 9));
}

TEST(PartitionTest, ExtremeDepthOverManyStages) {
  PartitionProblem problem = Problem({}, 128, 4);
  // 500 encoder layers of 12·d² and 500 decoder layers of 16·d², an embedding and a head.
  problem.cost.push_back(1);
  for (int layer = 0; layer < 500; ++layer) problem.cost.insert(problem.cost.end(), {4, 8});
  for (int layer = 0; layer < 500; ++layer) problem.cost.insert(problem.cost.end(), {4, 4, 8});
  problem.cost.push_back(30);
  problem.cut_allowed_before.assign(problem.cost.size(), true);
  const auto partition = MakePartition(problem);
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_EQ(partition->borders.size(), 513u);
  EXPECT_EQ(partition->borders.back(), 2502);
  EXPECT_EQ(partition->bottleneck_cost, 32);  // 14,031 / 512 = 27.4, and 28 cannot hold the head
}

TEST(PartitionTest, PiecesOfNoCost) {
  const auto partition = MakePartition(Problem({0, 0, 0}, 2));
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_THAT(partition->borders, ElementsAre(0, 1, 3));
  EXPECT_EQ(partition->bottleneck_cost, 0);
}

TEST(PartitionTest, SaysWhatToTryWhenNoSplitExists) {
  const auto message = [](const PartitionProblem& problem, absl::StatusCode code) {
    const auto partition = MakePartition(problem);
    EXPECT_EQ(partition.status().code(), code);
    return std::string(partition.status().message());
  };
  EXPECT_EQ(message(Problem({1, 1, 1}, 2, 2), absl::StatusCode::kInvalidArgument),
            "2 stages × 2 chunks are 4 pieces, but the 3 sublayers can be cut into at most 3; use fewer stages or "
            "chunks, or a "
            "deeper model");
  PartitionProblem uncut = Problem({1, 1, 1}, 2);
  uncut.cut_allowed_before = {true, false, false};
  EXPECT_THAT(message(uncut, absl::StatusCode::kInvalidArgument), HasSubstr("at most 1;"));
  PartitionProblem large = Problem({1, 1, 1, 1}, 2);
  large.bytes = {5, 5, 5, 5};
  large.bytes_limit = 9;
  EXPECT_THAT(message(large, absl::StatusCode::kResourceExhausted),
              AllOf(HasSubstr("no split into 2 pieces keeps each within 9 bytes"), HasSubstr("4 pieces would")));
  large.bytes[2] = 11;
  EXPECT_THAT(message(large, absl::StatusCode::kResourceExhausted), HasSubstr("sublayers 2 to 2 cannot be cut apart"));
  EXPECT_THAT(message(Problem({1, -1}, 1), absl::StatusCode::kInvalidArgument), HasSubstr("sublayer 1 has cost -1"));
  EXPECT_THAT(message(Problem({}, 1), absl::StatusCode::kInvalidArgument), HasSubstr("0 sublayers"));
}

TEST(PartitionTest, ExplicitSplitsAreTakenAsTheyAre) {
  const auto partition = PartitionByCounts(Problem({1, 2, 3, 4}, 2), {3, 1});
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_THAT(partition->borders, ElementsAre(0, 3, 4));
  EXPECT_THAT(partition->piece_cost, ElementsAre(6, 4));
  EXPECT_EQ(partition->bottleneck_cost, 6);
  EXPECT_EQ(partition->lower_bound, 5);
}

TEST(PartitionTest, ExplicitSplitsThatCannotBe) {
  PartitionProblem problem = Problem({1, 1, 1, 1, 1, 1}, 3);
  problem.cut_allowed_before[3] = false;
  const auto message = [&](const std::vector<int>& counts) {
    const auto partition = PartitionByCounts(problem, counts);
    EXPECT_FALSE(partition.ok());
    return std::string(partition.status().message());
  };
  EXPECT_THAT(message({3, 3}), HasSubstr("one count for each of the 3 stages × 1 chunks; got 2"));
  EXPECT_THAT(message({2, 2, 1}), HasSubstr("add up to the 6 sublayers; after 3 of 3 pieces they stand at 5"));
  EXPECT_THAT(message({2, 2, 3}), HasSubstr("stand at 7"));
  EXPECT_THAT(message({6, 0, 0}), HasSubstr("must be ≥ 1"));
  EXPECT_THAT(message({3, 1, 2}),
              HasSubstr("piece 1 of the explicit split would begin at sublayer 3, where no cut is legal; "
                        "the nearest legal ones are before sublayer 2 or 4"));
  problem.bytes = {1, 1, 1, 1, 9, 9};
  problem.bytes_limit = 10;
  EXPECT_THAT(message({2, 2, 2}),
              HasSubstr("piece 2 of the explicit split needs 18 bytes; the limit of a piece is 10"));
}

}  // namespace
}  // namespace hadal
