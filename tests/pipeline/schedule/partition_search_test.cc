// Against every split there is, down to the borders that ties must take (partition_test.cc: the same problem through
// MakePartition).
#include "pipeline/schedule/partition.h"

#include <algorithm>
#include <limits>

#include "gtest/gtest.h"
#include "runtime/random.h"

namespace hadal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
