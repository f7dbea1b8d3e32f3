#include "tools/plan/step_breakdown.h"

#include <numeric>

#include "runtime/status_macros.h"

namespace hadal {
namespace {

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

absl::StatusOr<BrokenDownReplay> BreakDownStep(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                               const ReplayCosts& costs, const ReplayOptions& options) {
  BrokenDownReplay result;
  HADAL_ASSIGN_OR_RETURN(result.replay, ReplaySchedule(programs, shape, costs, options));
  ReplayCosts free_links = costs;
  free_links.links.clear();
  HADAL_ASSIGN_OR_RETURN(const Replay unlimited, ReplaySchedule(programs, shape, free_links, options));
  ReplayCosts equal = EqualCosts(shape, Mean(costs.forward_seconds), Mean(costs.backward_seconds));
  if (!costs.weight_seconds.empty()) {
    equal.weight_seconds.assign(costs.weight_seconds.size(), Mean(costs.weight_seconds));
  }
  HADAL_ASSIGN_OR_RETURN(const Replay at_once, ReplaySchedule(programs, shape, equal, options));
  equal.gap_seconds = costs.gap_seconds;
  HADAL_ASSIGN_OR_RETURN(const Replay balanced, ReplaySchedule(programs, shape, equal, options));
  result.breakdown.compute_seconds = Mean(result.replay.busy_seconds);
  result.breakdown.host_seconds = balanced.makespan_seconds - at_once.makespan_seconds;
  result.breakdown.bubble_seconds = at_once.makespan_seconds - result.breakdown.compute_seconds;
  result.breakdown.imbalance_seconds = unlimited.makespan_seconds - balanced.makespan_seconds;
  result.breakdown.link_seconds = result.replay.makespan_seconds - unlimited.makespan_seconds;
  return result;
}

}  // namespace hadal
