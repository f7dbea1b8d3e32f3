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

double LargestPiece(const PartitionProblem& problem, const std::vector<int>& borders) {
  double largest = 0;
  for (size_t g = 0; g + 1 < borders.size(); ++g) {
    const auto begin = problem.cost.begin();
    largest = std::max(largest, std::accumulate(begin + borders[g], begin + borders[g + 1], 0.0));
  }
  return largest;
}

// The best split, by trying every one; largest is infinite where none is legal.
struct Best {
  double largest = kInfinity;
  double squares = kInfinity;  // Σ (piece cost)²
  std::vector<int> borders;
  int ties = 0;
};
// Whether the borders are earlier, from the last one backwards.
bool EarlierBorders(const std::vector<int>& a, const std::vector<int>& b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}
void TryAll(const PartitionProblem& problem, std::vector<int>& borders, double largest, double squares, Best& best) {
  const int n = static_cast<int>(problem.cost.size());
  if (std::ssize(borders) == problem.pieces() + 1) {
    if (borders.back() != n) return;
    const bool tie = largest == best.largest && squares == best.squares;
    best.ties += tie;
    if (std::pair(largest, squares) < std::pair(best.largest, best.squares) ||
        (tie && EarlierBorders(borders, best.borders))) {
      best = {largest, squares, borders, best.ties};
    }
    return;
  }
  double cost = 0;
  for (int end = borders.back() + 1; end <= n; ++end) {
    cost += problem.cost[end - 1];
    if (end < n && !problem.cut_allowed_before[end]) continue;
    borders.push_back(end);
    TryAll(problem, borders, std::max(largest, cost), squares + cost * cost, best);
    borders.pop_back();
  }
}
Best BestOf(const PartitionProblem& problem) {
  Best best;
  std::vector<int> borders = {0};
  TryAll(problem, borders, 0, 0, best);
  return best;
}

// Whole numbers below `limit`, so that sums are exact.
int Draw(uint32_t stream, uint64_t index, int limit) {
  return static_cast<int>(UniformAt(5, RandomSite::kSampling, stream, index) * limit);
}

PartitionProblem RandomProblem(uint32_t stream) {
  const int n = 1 + Draw(stream, 0, 12);
  PartitionProblem problem = Problem({}, 1 + Draw(stream, 1, 4), 1 + Draw(stream, 2, 2));
  for (int i = 0; i < n; ++i) {
    problem.cost.push_back(Draw(stream, 10 + 2 * i, 2 + stream % 4 * 4));  // a few numbers, so that ties are many
    problem.cut_allowed_before.push_back(Draw(stream, 11 + 2 * i, 4) != 0);
  }
  return problem;
}

TEST(PartitionTest, IsTheBestOfAllSplits) {
  int solved = 0, refused = 0, ties = 0;
  for (uint32_t stream = 0; stream < 3000; ++stream) {
    const PartitionProblem problem = RandomProblem(stream);
    const Best best = BestOf(problem);
    const auto borders = MakePartition(problem);
    ASSERT_EQ(borders.ok(), best.largest < kInfinity) << "stream " << stream << ": " << borders.status();
    (borders.ok() ? solved : refused) += 1;
    ties += best.ties;
    EXPECT_EQ(borders.value_or(std::vector<int>()), best.borders) << "stream " << stream;
  }
  EXPECT_GT(solved, 1000);
  EXPECT_GT(refused, 300);
  EXPECT_GT(ties, 1000);
}

TEST(PartitionTest, FractionalCostsReachTheOptimumToRounding) {
  for (uint32_t stream = 0; stream < 300; ++stream) {
    PartitionProblem problem = Problem({}, 4);
    for (int i = 0; i < 14; ++i) problem.cost.push_back(UniformAt(7, RandomSite::kSampling, stream, i));
    problem.cut_allowed_before.assign(problem.cost.size(), true);
    const auto borders = MakePartition(problem);
    EXPECT_NEAR(LargestPiece(problem, *borders), BestOf(problem).largest, 1e-12);
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
  EXPECT_THAT(message(uncut), HasSubstr("at most 1 (those that share a parameter or a skip stay together); use fewer"));
  EXPECT_THAT(message(Problem({1, -1}, 1)), HasSubstr("sublayer 1 has cost -1"));
  EXPECT_THAT(message(Problem({1, kInfinity}, 1)), HasSubstr("sublayer 1 has cost inf"));
  EXPECT_THAT(message(Problem({}, 1)), HasSubstr("0 sublayers"));
  PartitionProblem odd = Problem({1, 1}, 1);
  odd.cut_allowed_before = {true};
  EXPECT_THAT(message(odd), HasSubstr("1 marks of legal cuts"));
}

TEST(PartitionTest, ExplicitSplitsAreTakenAsTheyAre) {
  const auto borders = PartitionByCounts(Problem({1, 2, 3, 4}, 2), {3, 1});
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
  EXPECT_THAT(message({3, 1, 2}), HasSubstr("pipeline.split cuts before sublayer 3, where no cut is legal; "
                                            "the nearest legal ones are before sublayer 2 or 4"));
  problem.cut_allowed_before = {true, false, false, true, false, false};
  problem.stages = 2;
  EXPECT_THAT(message({1, 5}), HasSubstr("before sublayer 3"));
  EXPECT_THAT(message({4, 2}), HasSubstr("before sublayer 3"));
}

}  // namespace
}  // namespace hadal
