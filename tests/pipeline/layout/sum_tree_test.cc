// The order of a step's sums, against a loop that writes the tree down.
#include "pipeline/layout/sum_tree.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/random.h"

namespace hadal {
namespace {

// Of sizes so different that every order of adding them gives other bits.
float ValueOf(int micro_batch) {
  const auto draw = [&](uint32_t stream) { return UniformAt(7, RandomSite::kSampling, stream, micro_batch); };
  return static_cast<float>((draw(1) - 0.5) * std::exp2(20 * draw(2)));
}

// Of groups [first, first + count) of a step of `micro_batches`; count is a power of two.
float TreeOf(int micro_batches, int groups, int first, int count) {
  if (count > 1) {
    const float left = TreeOf(micro_batches, groups, first, count / 2);
    return left + TreeOf(micro_batches, groups, first + count / 2, count / 2);
  }
  float sum = 0;
  for (int m = 0; m < micro_batches; ++m) {
    if (m * groups / micro_batches == first) sum += ValueOf(m);
  }
  return sum;
}

float SumAsStated(int micro_batches, int groups) {
  int block = 1;
  while (groups % (2 * block) == 0) block *= 2;
  float sum = TreeOf(micro_batches, groups, 0, block);
  for (int first = block; first < groups; first += block) sum += TreeOf(micro_batches, groups, first, block);
  return sum;
}

// As replicas add it. `places`: the most that one of them keeps sums in.
float SumOnReplicas(int micro_batches, int groups, int replicas, int& places) {
  std::vector<float> sums;
  int m = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    const int first = m;
    std::vector<float> kept(groups, NAN);  // NaN: free
    float sum = 0;
    for (const GroupEnd& end : GroupEnds(micro_batches, groups, replicas, replica)) {
      while (m <= first + end.micro_batch) sum += ValueOf(m++);
      for (const int place : end.kept) sum += std::exchange(kept[place], NAN);
      if (end.keep < 0) continue;
      EXPECT_TRUE(std::isnan(kept[end.keep])) << "a kept sum would be lost";
      kept[end.keep] = std::exchange(sum, 0.0f);
      places = std::max(places, end.keep + 1);
    }
    sums.push_back(sum);
  }
  EXPECT_EQ(m, micro_batches);
  for (const SumStep& step : SumSteps(replicas)) sums[step.into] += sums[step.from];
  return sums[0];
}

TEST(SumTreeTest, EveryNumberOfReplicasAddsAsStated) {
  for (const int groups : {1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 64}) {
    for (int micro_batches = 1; micro_batches <= 70; ++micro_batches) {
      const float expected = SumAsStated(micro_batches, groups);
      int replicas = groups;
      for (int height = 0;; ++height, replicas /= 2) {  // G / R = 2^height
        int places = 0;
        if (replicas <= micro_batches) {
          EXPECT_EQ(SumOnReplicas(micro_batches, groups, replicas, places), expected)
              << micro_batches << " micro-batches, " << groups << " groups, " << replicas << " replicas";
        }
        EXPECT_LE(places, height);
        if (replicas % 2 != 0) break;
      }
    }
  }
}

TEST(SumTreeTest, TheOrderShows) {
  int differ = 0;
  for (int m = 8; m <= 70; ++m)
    differ += SumAsStated(m, 1) != SumAsStated(m, 8) && SumAsStated(m, 8) != SumAsStated(m, 4);
  EXPECT_GT(differ, 10);
}

}  // namespace
}  // namespace hadal
