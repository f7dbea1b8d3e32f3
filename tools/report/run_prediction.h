// Compares a finished run with what a profile or a machine's description predicts for it, for `hadal report`.
//
// The prediction is that of `hadal plan` for the run's own config and ranks. A run's micro-batches are about as full as
// the profile's if both read the same corpus. `hadal train --profile FILE --machine FILE` stores both files in the run
// directory, so that the report finds them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/run_record.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/layout_prediction.h"
#include "tools/report/run_summary.h"

namespace hadal {

struct RunPrediction {
  LayoutPrediction layout;
  std::string costs;            // the source of the costs
  int64_t predicted_bytes = 0;  // held by the fullest rank
  int64_t measured_bytes = 0;   // 0: not recorded
  double measured_seconds = 0;  // per step
  double utilisation = 0;  // operations of the model, without recomputation, over what matrix products alone reach here
  double roofline_share = 0;  // of the measured step: the predicted cost of all sublayers, spread over the ranks
  // [S] per step at full speed: a profile's seconds divided by the ratio of the run's threads to the profile's.
  std::vector<ComputeCosts> compute;

  double StepError() const { return layout.step_seconds / measured_seconds - 1; }
};

// Errors: those of reading the files and the run's config; InvalidArgument if the profile is of another model, or
// nothing gives the sizes of the vocabularies; NotFound if the costs are of other micro-batches.
absl::StatusOr<RunPrediction> PredictRun(const RunRecord& run, const RunSummary& summary, const CostFiles& files);

}  // namespace hadal
