// What a profile predicts for a run that has been made, beside what was measured: for `hadal report --profile`.
//
// The prediction is `hadal plan --profile`'s for the run's own config and ranks. A run's micro-batches are about as full as the
// profile's where both read one corpus.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/layout_prediction.h"
#include "tools/run_record.h"
#include "tools/run_summary.h"

namespace hadal {

struct RunPrediction {
  LayoutPrediction layout;
  std::string costs;            // where they are from
  int64_t predicted_bytes = 0;  // resident, of the fullest rank
  int64_t measured_bytes = 0;   // 0: not recorded
  double measured_seconds = 0;  // a step
  double utilisation = 0;  // operations of the model, without recomputation, over what matrix products alone reach here
  double roofline_share = 0;  // of the measured step: the profiled cost of all sublayers, spread over the ranks

  double StepError() const { return layout.step_seconds / measured_seconds - 1; }
  double MemoryError() const {
    return measured_bytes > 0 ? static_cast<double>(predicted_bytes) / static_cast<double>(measured_bytes) - 1 : 0;
  }
};

// `profile`: a file that `hadal bench profile` wrote.
// Errors: those of reading both; InvalidArgument where the profile is another model's; NotFound for other micro-batches.
absl::StatusOr<RunPrediction> PredictRun(const RunRecord& run, const RunSummary& summary, const std::string& profile);

}  // namespace hadal
