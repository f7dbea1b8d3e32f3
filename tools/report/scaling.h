// Compares layouts of one run on more and more cores: how efficient each is, and the cause of each lost percent.
//
// The unit is the core-second per target token: a run on P cores (ranks × threads) that takes T seconds for a step of N
// tokens spends
//   c = P·T / N          and has the efficiency c_0 / c,  where run 0 is the one on the fewest cores, of several the
//                        cheapest.
// This is strong scaling if all steps have equally many tokens, and weak scaling if tokens grow with the cores; the
// formula is the same. Every part of a run's step (run_summary.h) is a part of c. So the loss of a run against run 0,
// c − c_0, is the sum of the parts' differences, and each lost percent has a cause. ScalingRow::causes are these
// differences divided by c, and sum to 1 − efficiency. A negative cause is a gain. If the summaries have been
// compared with costs (CompareWithCosts), forward, recompute and backward are predicted work, and "compute slower
// than profiled" is what exceeds it. Otherwise the three are as measured, and slower compute appears as their loss
// against run 0.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/run_record.h"
#include "tools/report/run_summary.h"

namespace hadal {

// Returns a table of the fields that a run has set to something other than their default, or in which runs differ. A
// row has the field and each run's value ("-": its config could not be read), the first row the runs' names. Empty if
// no config could be read.
std::vector<std::vector<std::string>> SettingsTable(const std::vector<RunRecord>& runs);

// Returns why two runs cannot be compared as layouts of one run: a config that cannot be read, or up to three fields
// with different values. Fields of the layout, the batch's size, the run's length and its records may differ. "": the
// runs can be compared. Derived values are not compared, only the fields from which they are derived.
std::string DifferenceBesideLayout(const RunRecord& a, const RunRecord& b);

enum class ScalingKind { kStrong, kWeak, kMixed };  // kMixed: neither

struct ScalingRow {
  size_t run = 0;  // index in the runs given
  int cores = 1;
  double step_seconds = 0;
  double tokens = 0;  // per step
  double tokens_per_second = 0;
  double speedup = 1;  // tokens/s over run 0's
  double efficiency = 1;
  TimeParts causes;  // see the top of this file
};

struct Scaling {
  ScalingKind kind = ScalingKind::kStrong;
  std::vector<ScalingRow> rows;  // by cores, fewest first; of as many cores the cheapest first
};

std::string ToString(ScalingKind kind);

// Errors: InvalidArgument for fewer than two runs, runs that differ in more than their layout, or a run without stage
// times; names the run.
absl::StatusOr<Scaling> CompareRuns(const std::vector<RunRecord>& runs, const std::vector<RunSummary>& summaries);

// Describes the largest cause of a row's loss, with its remedy; if ranks mainly wait for a slow stage, that stage first
// (DescribeSlowStage). For an efficiency above 105% describes what makes row 0 slow. "" if all causes are below half a
// percent. `summary`: of the row's run.
std::string DescribeLoss(const ScalingRow& row, const RunSummary& summary);

}  // namespace hadal
