#include "pipeline/exchange/process_grid.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr Placement kPlacements[] = {Placement::kReplicasTogether, Placement::kStagesTogether};

TEST(GridShape, EveryStageOfEveryReplicaIsOneRankAndBack) {
  for (const Placement placement : kPlacements) {
    for (int stages = 1; stages <= 4; ++stages) {
      for (int replicas = 1; replicas <= 4; ++replicas) {
        const GridShape shape{.stages = stages, .replicas = replicas, .placement = placement};
        std::set<int> ranks;
        for (int stage = 0; stage < stages; ++stage) {
          for (int replica = 0; replica < replicas; ++replica) {
            const int rank = shape.RankOf(stage, replica);
            EXPECT_EQ(std::pair(shape.StageOf(rank), shape.ReplicaOf(rank)), std::pair(stage, replica));
            ranks.insert(rank);
          }
        }
        EXPECT_EQ(std::ssize(ranks), stages * replicas);
        EXPECT_EQ(std::pair(*ranks.begin(), *ranks.rbegin()), std::pair(0, shape.ranks() - 1));
      }
    }
  }
}

// On a host of consecutive ranks there are all replicas of a stage, or all stages of a replica.
TEST(GridShape, NeighboursAreReplicasOfAStageOrStagesOfAReplica) {
  const GridShape together{.stages = 3, .replicas = 2};
  const GridShape apart{.stages = 3, .replicas = 2, .placement = Placement::kStagesTogether};
  EXPECT_EQ(std::pair(together.StageOf(3), together.ReplicaOf(3)), std::pair(1, 1));
  EXPECT_EQ(std::pair(apart.StageOf(3), apart.ReplicaOf(3)), std::pair(0, 1));
  EXPECT_EQ(together.StageOf(2), together.StageOf(3));
  EXPECT_EQ(apart.ReplicaOf(3), apart.ReplicaOf(5));
}

// What this rank and every rank of `group` tell each other, all with the tag that the other group uses too.
struct Exchange {
  int said = 0;
  std::vector<int> heard;
  std::vector<CommRequest> requests;
};

absl::Status Post(Communicator& group, int said, Exchange& exchange) {
  constexpr int kTag = 7;
  exchange.said = said;
  exchange.heard.assign(group.size(), -1);
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    HADAL_ASSIGN_OR_RETURN(exchange.requests.emplace_back(),
                           group.Receive(&exchange.heard[peer], sizeof(int), peer, kTag));
    HADAL_ASSIGN_OR_RETURN(exchange.requests.emplace_back(),
                           group.Send(&exchange.said, sizeof(exchange.said), peer, kTag));
  }
  return absl::OkStatus();
}

absl::Status Complete(Communicator& group, Exchange& exchange) {
  for (CommRequest& request : exchange.requests) {
    HADAL_RETURN_IF_ERROR(group.Wait(request, absl::Now() + kHang, "a word"));
  }
  return absl::OkStatus();
}

// Both groups talk at once. A rank tells its pipeline 100 + world rank, and the replicas of its stage 200 + world rank.
absl::Status TalkInBothGroups(Communicator& world, const GridShape& shape) {
  ProcessGrid grid(world, shape);
  EXPECT_EQ(shape.RankOf(grid.stage(), grid.replica()), world.rank());
  EXPECT_EQ(std::pair(grid.pipeline().rank(), grid.pipeline().size()), std::pair(grid.stage(), shape.stages));
  EXPECT_EQ(std::pair(grid.replicas().rank(), grid.replicas().size()), std::pair(grid.replica(), shape.replicas));
  Exchange along, across;
  HADAL_RETURN_IF_ERROR(Post(grid.pipeline(), 100 + world.rank(), along));
  HADAL_RETURN_IF_ERROR(Post(grid.replicas(), 200 + world.rank(), across));
  HADAL_RETURN_IF_ERROR(Complete(grid.replicas(), across));
  HADAL_RETURN_IF_ERROR(Complete(grid.pipeline(), along));
  for (int stage = 0; stage < shape.stages; ++stage) {
    if (stage == grid.stage()) continue;
    EXPECT_EQ(along.heard[stage], 100 + shape.RankOf(stage, grid.replica()));
  }
  for (int replica = 0; replica < shape.replicas; ++replica) {
    if (replica == grid.replica()) continue;
    EXPECT_EQ(across.heard[replica], 200 + shape.RankOf(grid.stage(), replica));
  }
  return absl::OkStatus();
}

TEST(ProcessGrid, APipelineAndTheReplicasOfAStageTalkWithOneTagAndDoNotMeet) {
  for (const Placement placement : kPlacements) {
    for (const auto& [stages, replicas] : {std::pair(1, 1), std::pair(3, 1), std::pair(1, 3), std::pair(3, 2)}) {
      const GridShape shape{.stages = stages, .replicas = replicas, .placement = placement};
      InProcessWorld world(shape.ranks());
      const absl::Status status = world.Run([&](Communicator& rank) { return TalkInBothGroups(rank, shape); });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

}  // namespace
}  // namespace hadal
