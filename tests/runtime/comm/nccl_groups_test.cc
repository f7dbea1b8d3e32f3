// The order of connecting; that ranks do connect is every test of an NCCL communicator's.
#include "runtime/comm/nccl_groups.h"

#include <algorithm>

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

TEST(InRounds, ConnectsNeighboursInTwoRounds) {
  std::vector<RankPair> ring;
  for (int rank = 0; rank < 6; ++rank) ring.push_back({std::min(rank, (rank + 1) % 6), std::max(rank, (rank + 1) % 6)});
  ring.push_back(ring.front());
  EXPECT_THAT(InRounds(ring), ElementsAre(RankPair{0, 1}, RankPair{2, 3}, RankPair{4, 5}, RankPair{1, 2},
                                          RankPair{3, 4}, RankPair{0, 5}));
}

}  // namespace
}  // namespace hadal
