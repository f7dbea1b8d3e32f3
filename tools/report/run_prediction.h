// What a profile or a machine's description predicts for a run that has been made, beside what was measured: for `hadal
// report`.
//
// The prediction is `hadal plan`'s for the run's own config and ranks. A run's micro-batches are about as full as the
// profile's where both read one corpus. `hadal train --profile FILE --machine FILE` keeps both files in the run
// directory, so that the report need not be told again.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/layout_prediction.h"
#include "tools/report/run_record.h"
#include "tools/report/run_summary.h"

namespace hadal {

struct RunPrediction {
  LayoutPrediction layout;
  std::string costs;            // where they are from
  int64_t predicted_bytes = 0;  // held by the fullest rank
  int64_t measured_bytes = 0;   // 0: not recorded
  double measured_seconds = 0;  // a step
  double utilisation = 0;  // operations of the model, without recomputation, over what matrix products alone reach here
  double roofline_share = 0;  // of the measured step: the predicted cost of all sublayers, spread over the ranks
  // [S] of a step at full speed: a profile's seconds divided by how many times its threads the run has.
  std::vector<ComputeCosts> compute;

  double StepError() const { return layout.step_seconds / measured_seconds - 1; }
};

// Errors: those of reading the files and the run's config; InvalidArgument where the profile is another model's, or
// nothing says how large the vocabularies are; NotFound for other micro-batches.
absl::StatusOr<RunPrediction> PredictRun(const RunRecord& run, const RunSummary& summary, const CostFiles& files);

}  // namespace hadal
