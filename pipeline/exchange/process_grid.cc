#include "pipeline/exchange/process_grid.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pipeline/exchange/replica_buckets.h"
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

namespace {

using Pairs = std::set<std::pair<int, int>>;

void AddPair(int a, int b, Pairs& pairs) {
  if (a != b) pairs.emplace(std::min(a, b), std::max(a, b));
}

// Pairs of stages.
Pairs StagePairs(const ModelPlan& plan, const PipelineLayout& pipeline) {
  Pairs pairs;
  const ScheduleShape& shape = pipeline.shape;
  for (int g = 0; g + 1 < shape.global_chunks(); ++g) AddPair(shape.RankOf(g), shape.RankOf(g + 1), pairs);
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    if (!plan.parameters[p].is_table()) continue;
    for (const int32_t use : plan.Uses(p)) {
      AddPair(pipeline.OwnerOf(plan, p), pipeline.RankOfSublayer(use), pairs);
    }
  }
  return pairs;
}

}  // namespace

std::vector<TransferGroup> TransferGroups(const ModelPlan& plan, const PipelineLayout& pipeline) {
  const GridShape& grid = pipeline.grid;
  const ReplicaBlocks blocks{.replicas = grid.replicas};
  std::vector<TransferGroup> groups;
  // Both placements number world ranks in ascending order of stages, and of replicas.
  for (int replica = 0; replica < grid.replicas; ++replica) {
    TransferGroup& group = groups.emplace_back(TransferGroup{.ranks = StagesOfReplica(grid, replica)});
    for (const auto& [a, b] : StagePairs(plan, pipeline)) group.pairs.push_back({group.ranks[a], group.ranks[b]});
  }
  for (int stage = 0; stage < grid.stages; ++stage) {
    TransferGroup& group = groups.emplace_back(
        TransferGroup{.ranks = ReplicasOfStage(grid, stage), .kind = TransferGroup::Kind::kExchanges});
    for (int a = 0; a < grid.replicas; ++a) {
      for (int b = a + 1; b < grid.replicas; ++b) {
        if (blocks.Meet(a, b)) group.pairs.push_back({group.ranks[a], group.ranks[b]});
      }
    }
  }
  std::erase_if(groups, [](const TransferGroup& group) { return group.pairs.empty(); });
  return groups;
}

int MostConnections(std::span<const TransferGroup> groups) {
  std::map<int, int> connections;
  int most = 0;
  for (const TransferGroup& group : groups) {
    const bool wide = group.kind == TransferGroup::Kind::kExchanges && group.ranks.size() > 2;
    for (const RankPair& pair : group.pairs) {
      for (const int rank : {pair.first, pair.second}) most = std::max(most, connections[rank] += wide ? 4 : 2);
    }
  }
  return most;
}

}  // namespace hadal
