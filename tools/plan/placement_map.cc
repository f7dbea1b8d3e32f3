#include "tools/plan/placement_map.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/check.h"
#include "runtime/rank_facts.h"

namespace hadal {
namespace {

std::string Counted(const std::string& noun, const std::set<int>& numbers) {
  return absl::StrCat(noun, numbers.size() == 1 ? " " : "s ", CpuList({numbers.begin(), numbers.end()}));
}

// "stages 0-1: replicas 0-1; stage 2: replica 0", stages with the same replicas taken together.
std::string Parts(const GridShape& grid, const std::set<int>& ranks) {
  std::map<int, std::set<int>> replicas_of;  // by stage
  for (const int rank : ranks) replicas_of[grid.StageOf(rank)].insert(grid.ReplicaOf(rank));
  std::map<std::set<int>, std::set<int>> stages_with;  // by replicas
  for (const auto& [stage, replicas] : replicas_of) stages_with[replicas].insert(stage);
  std::vector<std::string> parts;
  parts.reserve(stages_with.size());
  for (const auto& [replicas, stages] : stages_with) {
    parts.push_back(grid.replicas == 1 ? Counted("stage", stages)
                                       : absl::StrCat(Counted("stage", stages), ": ", Counted("replica", replicas)));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace

std::string PlacementMap(const GridShape& grid, const std::vector<std::string>& hosts, int most_hosts) {
  HADAL_CHECK_EQ(static_cast<int>(hosts.size()), grid.ranks());
  std::vector<std::string> names;  // in order of their first rank
  std::map<std::string, std::set<int>> ranks_of;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (ranks_of[hosts[rank]].empty()) names.push_back(hosts[rank]);
    ranks_of[hosts[rank]].insert(rank);
  }
  const auto count = [](size_t number, const std::string& noun) {
    return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
  };
  std::string text = absl::StrCat("placement  ", count(grid.stages, "stage"), " x ", count(grid.replicas, "replica"),
                                  " on ", count(names.size(), "host"));
  if (grid.stages > 1 && grid.replicas > 1) {
    const bool replicas = grid.placement == Placement::kReplicasTogether;
    absl::StrAppend(&text, replicas ? ", replicas of a stage together" : ", stages of a replica together");
  }
  text += "\n";
  size_t widest = 0;
  for (const std::string& name : names) widest = std::max(widest, name.size());
  for (size_t i = 0; i < names.size() && static_cast<int>(i) < most_hosts; ++i) {
    const std::set<int>& ranks = ranks_of[names[i]];
    absl::StrAppend(&text, "  ", names[i], std::string(widest - names[i].size(), ' '), "  ", Counted("rank", ranks),
                    "  ", Parts(grid, ranks), "\n");
  }
  const int more = static_cast<int>(names.size()) - most_hosts;
  if (more > 0) absl::StrAppend(&text, "  and ", count(more, "host"), " more\n");
  return text;
}

}  // namespace hadal
