#include "tools/report/scaling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"

namespace hadal {
namespace {

bool Near(double a, double b) { return std::abs(a - b) <= 0.02 * std::max(std::abs(a), std::abs(b)); }

ScalingKind KindOf(const std::vector<ScalingRow>& rows) {
  const auto all = [&](auto&& same) {
    return std::all_of(rows.begin(), rows.end(), [&](const ScalingRow& row) { return same(row); });
  };
  const ScalingRow& base = rows.front();
  if (all([&](const ScalingRow& row) { return Near(row.tokens, base.tokens); })) return ScalingKind::kStrong;
  if (all([&](const ScalingRow& row) { return Near(row.tokens / row.cores, base.tokens / base.cores); })) {
    return ScalingKind::kWeak;
  }
  return ScalingKind::kMixed;
}

absl::Status CheckComparable(const std::vector<RunRecord>& runs, const std::vector<RunSummary>& summaries) {
  if (runs.size() < 2) return absl::InvalidArgumentError("scaling needs two runs or more");
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].model != runs[0].model) {
      return absl::InvalidArgumentError(absl::StrCat("scaling compares runs of one model, but ", runs[0].directory,
                                                     " is ", runs[0].model, " and ", runs[i].directory, " is ",
                                                     runs[i].model));
    }
    if (!summaries[i].parts) {
      return absl::InvalidArgumentError(
          absl::StrCat(runs[i].directory, ": no step has stage times; set logging.every_steps"));
    }
  }
  return absl::OkStatus();
}

const char* RemedyOf(const TimePart& part) {
  const std::string name = part.name;
  if (name == "bubble") return "more micro-batches per step, or interleaved_1f1b with more chunks";
  if (name == "imbalance") return "let the partition follow measured costs (pipeline.split), or replace the slow rank";
  if (name == "exposed transfers")
    return "larger pipeline.outstanding_sends, faster links, or fewer ranks that share a core";
  if (name == "communication") return "fewer ranks to wait for in a step's tail, faster links";
  if (name == "recompute") return "less recomputation where memory allows";
  if (name == "checkpoint") return "checkpoint.buffer_mebibytes, or fewer checkpoints";
  if (name == "waiting for a core") return "one core per thread of each rank, without other processes on it";
  if (name == "optimizer") return "sharding of the optimizer over replicas";
  if (name == "other") return "the time outside all measured parts: a busy host, paging, logging";
  if (name == "compute slower than profiled")
    return "shared caches and memory bandwidth, lower clocks, a slow device; a profile of as many ranks at once "
           "separates the first from "
           "the others";
  return "compute takes longer than on fewer cores: shared caches and memory bandwidth, lower clocks, more ranks than "
         "cores";
}

}  // namespace

std::string ToString(ScalingKind kind) {
  switch (kind) {
    case ScalingKind::kStrong:
      return "strong";
    case ScalingKind::kWeak:
      return "weak";
    case ScalingKind::kMixed:
      return "mixed";
  }
  return "";
}

absl::StatusOr<Scaling> CompareRuns(const std::vector<RunRecord>& runs, const std::vector<RunSummary>& summaries) {
  HADAL_CHECK_EQ(runs.size(), summaries.size());
  const absl::Status comparable = CheckComparable(runs, summaries);
  if (!comparable.ok()) return comparable;
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return runs[a].cores() < runs[b].cores(); });
  Scaling scaling;
  const RunSummary& base = summaries[order[0]];
  const int base_cores = runs[order[0]].cores();
  const double base_cost = base_cores * base.step_seconds / base.tokens;  // core-seconds a token
  for (const size_t run : order) {
    const RunSummary& summary = summaries[run];
    const int cores = runs[run].cores();
    const double cost = cores * summary.step_seconds / summary.tokens;
    ScalingRow row{.run = run,
                   .cores = cores,
                   .step_seconds = summary.step_seconds,
                   .tokens = summary.tokens,
                   .tokens_per_second = summary.tokens_per_second(),
                   .speedup = summary.tokens_per_second() / base.tokens_per_second(),
                   .efficiency = base_cost / cost};
    for (const TimePart& part : kTimeParts) {
      const double mine = cores * ((*summary.parts).*part.seconds) / summary.tokens;
      const double theirs = base_cores * ((*base.parts).*part.seconds) / base.tokens;
      row.causes.*part.seconds = (mine - theirs) / cost;
    }
    scaling.rows.push_back(row);
  }
  scaling.kind = KindOf(scaling.rows);
  return scaling;
}

std::string DescribeLoss(const ScalingRow& row, const RunSummary& summary) {
  const TimePart* largest = nullptr;
  for (const TimePart& part : kTimeParts) {
    if (largest == nullptr || row.causes.*part.seconds > row.causes.*(largest->seconds)) largest = &part;
  }
  if (row.causes.*(largest->seconds) < 0.005) return "";
  std::string text =
      absl::StrFormat("%s costs %.1f%%: %s", largest->name, 100 * (row.causes.*(largest->seconds)), RemedyOf(*largest));
  if (row.causes.imbalance >= 0.01) {
    absl::StrAppendFormat(&text, "; imbalance %.1f%%, stage %d computes %.0f%% longer than the mean",
                          100 * row.causes.imbalance, summary.slowest_stage, 100 * summary.slowest_excess);
  }
  const auto slowest = std::max_element(summary.beyond_costs.begin(), summary.beyond_costs.end());
  if (row.causes.slower >= 0.01 && slowest != summary.beyond_costs.end()) {
    absl::StrAppendFormat(&text, "; stage %d computes %.0f%% longer than predicted",
                          slowest - summary.beyond_costs.begin(), 100 * *slowest);
  }
  return text;
}

}  // namespace hadal
