#include "tools/plan/step_breakdown.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "pipeline/options/grid_shape.h"
#include "runtime/status_macros.h"
#include "tools/output/run_record.h"

namespace hadal {
namespace {

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

using Json = nlohmann::json;

// The part of one step that has been read.
struct Sums {
  std::vector<double> forward, backward;  // [G]
  std::vector<int> forwards, backwards;   // [G]
  std::set<int64_t> micro_batches;
  double begin = std::numeric_limits<double>::infinity(), end = 0;

  explicit Sums(size_t chunks) : forward(chunks), backward(chunks), forwards(chunks), backwards(chunks) {}
};

// Throws Json::exception if a field does not have the type that trace_writer.h writes.
void Add(const Json& event, const LayoutRecord& layout, std::map<int64_t, Sums>& steps) {
  if (event.value("ph", "") != "X") return;
  const std::string category = event.value("cat", "");
  const bool forward = category == "forward", weights = category == "backward weights";
  if (!forward && !weights && category != "backward") return;
  const int rank = event.at("pid").get<int>();
  const GridShape grid{layout.shape.stages, layout.replicas, layout.placement};
  if (rank >= grid.ranks() || grid.ReplicaOf(rank) != 0) return;
  const Json& arguments = event.at("args");
  const int global_chunk = layout.shape.GlobalChunk(grid.StageOf(rank), arguments.value("chunk", 0));
  Sums& sums = steps.try_emplace(arguments.at("step").get<int64_t>(), layout.shape.global_chunks()).first->second;
  if (global_chunk < 0 || global_chunk >= layout.shape.global_chunks()) return;
  const double begin = 1e-6 * event.at("ts").get<double>(), seconds = 1e-6 * event.at("dur").get<double>();
  (forward ? sums.forward : sums.backward)[global_chunk] += seconds;
  if (!weights) ++(forward ? sums.forwards : sums.backwards)[global_chunk];
  sums.micro_batches.insert(arguments.value("micro_batch", int64_t{0}));
  sums.begin = std::min(sums.begin, begin);
  sums.end = std::max(sums.end, begin + seconds);
}

// Returns false for a step that the trace contains only in part.
bool Finish(int64_t step, const Sums& sums, TracedCosts& costs) {
  costs = {.step = step,
           .micro_batches = static_cast<int>(sums.micro_batches.size()),
           .span_seconds = sums.end - sums.begin};
  for (size_t g = 0; g < sums.forward.size(); ++g) {
    if (sums.forwards[g] != costs.micro_batches || sums.backwards[g] != costs.micro_batches) return false;
    costs.forward_seconds.push_back(sums.forward[g] / costs.micro_batches);
    costs.backward_seconds.push_back(sums.backward[g] / costs.micro_batches);
  }
  return true;
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

absl::StatusOr<std::vector<TracedCosts>> CostsFromTrace(const std::string& trace, const LayoutRecord& layout) {
  const auto damaged = [](absl::string_view why) { return DataLossError("the trace cannot be read: ", why); };
  if (!absl::StrContains(trace, "\"traceEvents\":[\n")) return damaged("it has no list of events, one a line");
  std::vector<TracedCosts> all;
  try {
    std::map<int64_t, Sums> steps;
    for (const absl::string_view line : absl::StrSplit(trace, '\n')) {
      if (absl::StartsWith(line, "{\"ph\":")) Add(Json::parse(absl::StripSuffix(line, ",")), layout, steps);
    }
    for (const auto& [step, sums] : steps) {
      TracedCosts costs;
      if (Finish(step, sums, costs)) all.push_back(std::move(costs));
    }
  } catch (const Json::exception& error) {
    return damaged(error.what());
  }
  if (all.empty()) return NotFoundError("the trace has no step with every chunk's forward and backward passes");
  return all;
}

}  // namespace hadal
