#include "tools/report/scaling.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/check.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_schema.h"

namespace hadal {
namespace {

using Origin = EffectiveValue::Origin;

// Groups that say how, how long and how much at a time a run computes, and what it records, but not what.
constexpr const char* kLayoutGroups[] = {"pipeline.",   "batch.",      "stop.",   "logging.",
                                         "validation.", "checkpoint.", "decode.", "health."};

bool IsChosen(const EffectiveValue& value) {
  return value.origin == Origin::kSet && value.value != DefaultText(*value.field);
}

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
  if (runs.size() < 2) return InvalidArgumentError("scaling needs two runs or more");
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].model != runs[0].model) {
      return InvalidArgumentError("scaling compares runs of one model, but ", runs[0].directory, " is ", runs[0].model,
                                  " and ", runs[i].directory, " is ", runs[i].model);
    }
    if (const std::string difference = DifferenceBesideLayout(runs[0], runs[i]); !difference.empty()) {
      return InvalidArgumentError("scaling compares layouts of one run, but ", difference);
    }
    if (!summaries[i].parts) {
      return InvalidArgumentError(runs[i].directory, ": no step has stage times; set logging.every_steps");
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
  if (name == "unexplained") return "what no clock has measured: a busy host, paging, logging";
  if (name == "compute slower than profiled")
    return "shared caches and memory bandwidth, lower clocks, a slow device; a profile of as many ranks at once "
           "separates the first from the others";
  return "compute takes longer than on fewer cores: shared caches and memory bandwidth, lower clocks, more ranks than "
         "cores";
}

constexpr double kSuspicious = 1.05;  // efficiency

// More than all of the cores' speed is what row 0 lacks.
std::string DescribeGain(const ScalingRow& row) {
  std::vector<TimePart> parts(std::begin(kTimeParts), std::end(kTimeParts));
  std::ranges::stable_sort(parts, {}, [&](const TimePart& part) { return row.causes.*part.seconds; });
  std::vector<std::string> gains;
  for (const TimePart& part : parts) {
    if (gains.size() < 3 && row.causes.*part.seconds < -0.01) {
      gains.push_back(absl::StrFormat("%s (%+.1f%%)", part.name, -100 * (row.causes.*part.seconds)));
    }
  }
  return absl::StrFormat(
      "efficiency %.1f%%, more than there is: a token takes more core time in the first row, where it goes to %s; its "
      "threads may share too little work, other processes may have used its cores, or it was too short to be measured",
      100 * row.efficiency, absl::StrJoin(gains, ", "));
}

}  // namespace

std::vector<std::vector<std::string>> SettingsTable(const std::vector<RunRecord>& runs) {
  const auto known = std::find_if(runs.begin(), runs.end(), [](const RunRecord& run) { return !run.config.empty(); });
  if (known == runs.end()) return {};
  std::vector<std::vector<std::string>> rows = {{"field"}};
  for (const RunRecord& run : runs) rows[0].push_back(run.name);
  for (size_t field = 0; field < known->config.size(); ++field) {
    std::vector<std::string> row = {known->config[field].path};
    bool shown = false;
    for (const RunRecord& run : runs) {
      row.push_back(run.config.empty() ? "-" : run.config[field].value);
      if (run.config.empty()) continue;
      shown |= IsChosen(run.config[field]) || run.config[field].value != known->config[field].value;
    }
    if (shown) rows.push_back(std::move(row));
  }
  return rows;
}

std::string DifferenceBesideLayout(const RunRecord& a, const RunRecord& b) {
  constexpr size_t kMost = 3;
  for (const RunRecord* run : {&a, &b}) {
    if (run->config.empty()) {
      return absl::StrCat(run->directory, "/", kResolvedConfigName, " cannot be read, and may differ in anything");
    }
  }
  std::vector<std::string> differences;
  for (size_t field = 0; field < a.config.size(); ++field) {
    const EffectiveValue &one = a.config[field], &two = b.config[field];
    const bool derived = one.origin == Origin::kDerived && two.origin == Origin::kDerived;
    const bool layout = std::any_of(std::begin(kLayoutGroups), std::end(kLayoutGroups),
                                    [&](const char* group) { return absl::StartsWith(one.path, group); });
    if (one.value == two.value || derived || layout) continue;
    differences.push_back(absl::StrCat(one.path, " (", one.value, ", ", two.value, ")"));
  }
  if (differences.empty()) return "";
  const size_t more = differences.size() - std::min(differences.size(), kMost);
  differences.resize(differences.size() - more);
  return absl::StrCat(a.directory, " and ", b.directory, " differ in ", absl::StrJoin(differences, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

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
  HADAL_RETURN_IF_ERROR(CheckComparable(runs, summaries));
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&](size_t run) { return std::pair(runs[run].cores(), -summaries[run].tokens_per_second()); });
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
  if (row.efficiency > kSuspicious) return DescribeGain(row);
  const TimeParts& causes = row.causes;
  const TimePart* largest = nullptr;
  for (const TimePart& part : kTimeParts) {
    if (largest == nullptr || causes.*part.seconds > causes.*(largest->seconds)) largest = &part;
  }
  if (causes.*(largest->seconds) < 0.005) return "";
  std::string text =
      absl::StrFormat("%s costs %.1f%%: %s", largest->name, 100 * (causes.*(largest->seconds)), RemedyOf(*largest));
  // Much more waiting than the imbalance explains has another cause.
  const bool unbalanced = causes.imbalance >= 0.01 && causes.imbalance >= causes.exposed_transfers / 4;
  const std::string slow = unbalanced ? DescribeSlowStage(summary) : "";
  // The slow stage itself may wait for a core, and the others for it.
  const double waiting = causes.imbalance + causes.exposed_transfers;
  const bool is_waiting = largest->seconds == &TimeParts::imbalance ||
                          largest->seconds == &TimeParts::exposed_transfers ||
                          largest->seconds == &TimeParts::core_wait;
  if (!slow.empty() && (is_waiting || waiting >= causes.*(largest->seconds))) {
    text = absl::StrFormat("%s. Waiting for others costs %.1f%% (imbalance %.1f%%, exposed transfers %.1f%%)", slow,
                           100 * waiting, 100 * causes.imbalance, 100 * causes.exposed_transfers);
    if (largest->seconds == &TimeParts::core_wait) {
      absl::StrAppendFormat(&text, ", waiting for a core %.1f%%", 100 * causes.core_wait);
    }
  } else if (causes.imbalance >= 0.01) {
    absl::StrAppendFormat(&text, "; imbalance %.1f%%, stage %d computes %.0f%% longer than the mean",
                          100 * causes.imbalance, summary.slowest_stage, 100 * summary.slowest_excess);
  }
  const auto slowest = std::max_element(summary.beyond_costs.begin(), summary.beyond_costs.end());
  if (row.causes.slower >= 0.01 && slowest != summary.beyond_costs.end()) {
    absl::StrAppendFormat(&text, "; stage %d computes %.0f%% longer than predicted",
                          slowest - summary.beyond_costs.begin(), 100 * *slowest);
  }
  return text;
}

}  // namespace hadal
