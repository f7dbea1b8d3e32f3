#include "pipeline/schedule/partition.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "runtime/random.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

PartitionProblem Problem(std::vector<double> cost, int stages, int chunks = 1) {
  PartitionProblem problem{.stages = stages, .chunks = chunks, .cost = std::move(cost), .cut_allowed_before = {}};
  problem.cut_allowed_before.assign(problem.cost.size(), true);
  return problem;
}

std::vector<double> PieceCosts(const PartitionProblem& problem, const std::vector<int>& borders) {
  std::vector<double> costs;
  for (size_t g = 0; g + 1 < borders.size(); ++g) {
    costs.push_back(std::accumulate(problem.cost.begin() + borders[g], problem.cost.begin() + borders[g + 1], 0.0));
  }
  return costs;
}
double LargestPiece(const PartitionProblem& problem, const std::vector<int>& borders) {
  const std::vector<double> costs = PieceCosts(problem, borders);
  return *std::max_element(costs.begin(), costs.end());
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
  for (int end = begin + 1; end <= n; ++end) {
    cost += problem.cost[end - 1];
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
  for (int i = 0; i < n; ++i) {
    problem.cost.push_back(Draw(stream, 10 + 2 * i, 12));
    problem.cut_allowed_before.push_back(Draw(stream, 11 + 2 * i, 4) != 0);
  }
  return problem;
}

TEST(PartitionTest, IsTheBestOfAllSplits) {
  int solved = 0, refused = 0;
  for (uint32_t stream = 0; stream < 3000; ++stream) {
    const PartitionProblem problem = RandomProblem(stream);
    Best best;
    TryAll(problem, 0, problem.pieces(), 0, 0, best);
    const auto borders = MakePartition(problem);
    ASSERT_EQ(borders.ok(), best.largest < kInfinity) << "stream " << stream << ": " << borders.status();
    if (!borders.ok()) {
      ++refused;
      continue;
    }
    ++solved;
    double squares = 0;
    for (const double cost : PieceCosts(problem, *borders)) squares += cost * cost;
    EXPECT_EQ(LargestPiece(problem, *borders), best.largest) << "stream " << stream;
    EXPECT_EQ(squares, best.squares) << "stream " << stream;
    ASSERT_EQ(std::ssize(*borders), problem.pieces() + 1);
    for (int g = 0; g < problem.pieces(); ++g) {
      const int begin = (*borders)[g];
      ASSERT_LT(begin, (*borders)[g + 1]);
      EXPECT_TRUE(begin == 0 || problem.cut_allowed_before[begin]);
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
    const auto borders = MakePartition(problem);
    ASSERT_TRUE(borders.ok()) << borders.status();
    EXPECT_NEAR(LargestPiece(problem, *borders), best.largest, 1e-12);
  }
}

TEST(PartitionTest, ExtremeDepthOverManyStages) {
  PartitionProblem problem = Problem({}, 128, 4);
  // 500 encoder layers of 12·d² and 500 decoder layers of 16·d², an embedding and a head.
  problem.cost.push_back(1);
  for (int layer = 0; layer < 500; ++layer) problem.cost.insert(problem.cost.end(), {4, 8});
  for (int layer = 0; layer < 500; ++layer) problem.cost.insert(problem.cost.end(), {4, 4, 8});
  problem.cost.push_back(30);
  problem.cut_allowed_before.assign(problem.cost.size(), true);
  const auto borders = MakePartition(problem);
  ASSERT_TRUE(borders.ok()) << borders.status();
  EXPECT_EQ(borders->size(), 513u);
  EXPECT_EQ(borders->back(), 2502);
  EXPECT_EQ(LargestPiece(problem, *borders), 32);  // 14,031 / 512 = 27.4, and 28 cannot hold the head
}

TEST(PartitionTest, SaysWhatToTryWhenNoSplitExists) {
  const auto message = [](const PartitionProblem& problem) {
    const auto borders = MakePartition(problem);
    EXPECT_EQ(borders.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(borders.status().message());
  };
  EXPECT_EQ(
      message(Problem({1, 1, 1}, 2, 2)),
      "2 stages × 2 chunks are 4 pieces, but the 3 parts of the model (its sublayers, embeddings and output) can be "
      "cut into at most 3; use fewer stages or chunks, or a deeper model");
  PartitionProblem uncut = Problem({1, 1, 1}, 2);
  uncut.cut_allowed_before = {true, false, false};
  EXPECT_THAT(message(uncut), HasSubstr("at most 1 (those that share a parameter stay together); use fewer"));
  EXPECT_THAT(message(Problem({1, -1}, 1)), HasSubstr("sublayer 1 has cost -1"));
  EXPECT_THAT(message(Problem({1, kInfinity}, 1)), HasSubstr("sublayer 1 has cost inf"));
  EXPECT_THAT(message(Problem({}, 1)), HasSubstr("0 sublayers"));
  PartitionProblem odd = Problem({1, 1}, 1);
  odd.cut_allowed_before = {true};
  EXPECT_THAT(message(odd), HasSubstr("1 marks of legal cuts"));
}

TEST(PartitionTest, ExplicitSplitsAreTakenAsTheyAre) {
  const auto borders = PartitionByCounts(Problem({1, 2, 3, 4}, 2), {3, 1});
  ASSERT_TRUE(borders.ok()) << borders.status();
  EXPECT_THAT(*borders, ElementsAre(0, 3, 4));
}

TEST(PartitionTest, ExplicitSplitsThatCannotBe) {
  PartitionProblem problem = Problem({1, 1, 1, 1, 1, 1}, 3);
  problem.cut_allowed_before[3] = false;
  const auto message = [&](const std::vector<int>& counts) {
    const auto borders = PartitionByCounts(problem, counts);
    EXPECT_FALSE(borders.ok());
    return std::string(borders.status().message());
  };
  EXPECT_THAT(message({3, 3}), HasSubstr("one count for each of the 3 stages × 1 chunks; got 2"));
  EXPECT_THAT(message({2, 2, 1}), HasSubstr("add up to the 6 sublayers; after 3 of 3 pieces they stand at 5"));
  EXPECT_THAT(message({2, 2, 3}), HasSubstr("stand at 7"));
  EXPECT_THAT(message({6, 0, 0}), HasSubstr("must be ≥ 1"));
  EXPECT_THAT(message({3, 1, 2}),
              HasSubstr("piece 1 of the explicit split would begin at sublayer 3, where no cut is legal; "
                        "the nearest legal ones are before sublayer 2 or 4"));
  problem.cut_allowed_before = {true, false, false, true, false, false};
  problem.stages = 2;
  EXPECT_THAT(message({1, 5}), HasSubstr("before sublayer 3"));
  EXPECT_THAT(message({4, 2}), HasSubstr("before sublayer 3"));
}

// The search beneath MakePartition, against every split there is, down to the borders that ties must take.
PartitionBlocks BlocksOf(const std::vector<int>& cost) {
  PartitionBlocks blocks{.begin = {0}, .cost_before = {0}};
  for (size_t i = 0; i < cost.size(); ++i) {
    blocks.begin.push_back(static_cast<int>(i) + 1);
    blocks.cost_before.push_back(blocks.cost_before.back() + cost[i]);
  }
  return blocks;
}

struct Split {
  double largest = kInfinity;
  double squares = kInfinity;
  std::vector<int> borders;
};

// The earlier borders, from the last one backwards.
bool EarlierBorders(const std::vector<int>& a, const std::vector<int>& b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

// Every split of n blocks is a set of borders between them: the bits of a number.
std::vector<Split> AllSplits(const PartitionBlocks& blocks) {
  std::vector<Split> splits;
  for (unsigned cuts = 0; cuts < 1u << (blocks.size() - 1); ++cuts) {
    Split split{.largest = 0, .squares = 0, .borders = {0}};
    for (int i = 1; i < blocks.size(); ++i) {
      if ((cuts >> (i - 1) & 1) != 0) split.borders.push_back(i);
    }
    split.borders.push_back(blocks.size());
    for (size_t g = 0; g + 1 < split.borders.size(); ++g) {
      const int begin = split.borders[g], end = split.borders[g + 1];
      const double cost = blocks.cost_before[end] - blocks.cost_before[begin];
      split.largest = std::max(split.largest, cost);
      split.squares += cost * cost;
    }
    splits.push_back(split);
  }
  return splits;
}

// Few different costs, zeros among them, so that ties are many.
PartitionBlocks RandomBlocks(uint32_t stream) {
  auto draw = [&, index = uint64_t{0}](int limit) mutable {
    return static_cast<int>(UniformAt(9, RandomSite::kSampling, stream, index++) * limit);
  };
  const int n = 1 + draw(9), largest = 2 + draw(4);
  std::vector<int> cost;
  for (int i = 0; i < n; ++i) cost.push_back(draw(largest));
  return BlocksOf(cost);
}

TEST(PartitionSearch, TheSmallestBoundAndTheEarliestBalancedBorders) {
  int ties = 0;
  for (uint32_t stream = 0; stream < 600; ++stream) {
    const PartitionBlocks blocks = RandomBlocks(stream);
    const std::vector<Split> all = AllSplits(blocks);
    for (int pieces = 1; pieces <= blocks.size(); ++pieces) {
      double bound = kInfinity;
      const auto of_size = [&](const Split& split) { return std::ssize(split.borders) == pieces + 1; };
      for (const Split& split : all) {
        if (std::ssize(split.borders) <= pieces + 1) bound = std::min(bound, split.largest);
      }
      ASSERT_EQ(SmallestBound(blocks, pieces), bound) << stream << ", " << pieces << " pieces";
      for (const double slack : {0.0, 2.0, kInfinity}) {
        Split best;
        for (const Split& split : all) {
          if (!of_size(split) || split.largest > bound + slack || split.squares > best.squares) continue;
          const bool tie = split.squares == best.squares;
          ties += tie;
          if (!tie || EarlierBorders(split.borders, best.borders)) best = split;
        }
        EXPECT_EQ(BalancedBorders(blocks, pieces, bound + slack), best.borders) << stream << ", " << pieces;
      }
    }
  }
  EXPECT_GT(ties, 1000);
}

}  // namespace
}  // namespace hadal
