#include "pipeline/exchange/process_grid.h"

#include <vector>

#include "runtime/check.h"

namespace hadal {
namespace {

constexpr int kPipelineTagSpace = 1;
constexpr int kReplicasTagSpace = 2;

std::vector<int> StagesOfReplica(const GridShape& shape, int replica) {
  std::vector<int> ranks;
  ranks.reserve(shape.stages);
  for (int stage = 0; stage < shape.stages; ++stage) ranks.push_back(shape.RankOf(stage, replica));
  return ranks;
}

std::vector<int> ReplicasOfStage(const GridShape& shape, int stage) {
  std::vector<int> ranks;
  ranks.reserve(shape.replicas);
  for (int replica = 0; replica < shape.replicas; ++replica) ranks.push_back(shape.RankOf(stage, replica));
  return ranks;
}

}  // namespace

ProcessGrid::ProcessGrid(Communicator& world, const GridShape& shape)
    : world_(world),
      shape_(shape),
      replicas_(world, ReplicasOfStage(shape, shape.StageOf(world.rank())), kReplicasTagSpace) {
  HADAL_CHECK_EQ(world.size(), shape.ranks());
  if (shape.replicas > 1) pipeline_.emplace(world, StagesOfReplica(shape, replica()), kPipelineTagSpace);
}

}  // namespace hadal
