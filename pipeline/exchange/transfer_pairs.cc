#include "pipeline/exchange/transfer_pairs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace hadal {
namespace {

using Pairs = std::set<std::pair<int, int>>;

void AddPair(int a, int b, Pairs& pairs) {
  if (a != b) pairs.emplace(std::min(a, b), std::max(a, b));
}

// Pairs of stages.
Pairs StagePairs(const ModelPlan& plan, const PipelinePlan& pipeline) {
  Pairs pairs;
  const ScheduleShape& shape = pipeline.shape;
  for (int g = 0; g + 1 < shape.global_chunks(); ++g) AddPair(shape.RankOf(g), shape.RankOf(g + 1), pairs);
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    if (plan.parameters[p].role != ParameterRole::kEmbedding) continue;
    for (const int32_t use : plan.Uses(p)) {
      AddPair(pipeline.OwnerOf(plan, p), pipeline.RankOfSublayer(use), pairs);
    }
  }
  return pairs;
}

}  // namespace

std::vector<RankPair> TransferPairs(const ModelPlan& plan, const PipelinePlan& pipeline) {
  const GridShape& grid = pipeline.grid;
  Pairs pairs;
  for (const auto& [a, b] : StagePairs(plan, pipeline)) {
    for (int r = 0; r < grid.replicas; ++r) AddPair(grid.RankOf(a, r), grid.RankOf(b, r), pairs);
  }
  for (int stage = 0; stage < grid.stages; ++stage) {
    for (int a = 0; a < grid.replicas; ++a) {
      for (int b = a + 1; b < grid.replicas; ++b) AddPair(grid.RankOf(stage, a), grid.RankOf(stage, b), pairs);
    }
  }
  std::vector<RankPair> list;
  for (const auto& [a, b] : pairs) list.push_back({a, b});
  return list;
}

int MostLinks(std::span<const RankPair> pairs) {
  std::map<int, int> links;
  for (const RankPair& pair : pairs) {
    if (pair.first == pair.second) continue;  // a rank and itself need none
    for (const int rank : {pair.first, pair.second}) links[rank] += 2;
  }
  int most = 0;
  for (const auto& [rank, count] : links) most = std::max(most, count);
  return most;
}

}  // namespace hadal
