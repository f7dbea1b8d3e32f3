// RunHealth reports steps whose update was skipped, and decides when a run rolls back to its last checkpoint.
//
//   after a step                              skipped: returns a sentence with the reason; applied: the count of
//                                             skipped steps in a row restarts at 0
//   after `health.skipped_steps` in a row     roll back weights, moments and update number to the newest good
//                                             checkpoint. Data and random numbers continue after the failed steps,
//                                             because the same steps would fail again
//   before a second rollback to the           the run ends
//   weights of the same checkpoint
// Pure: the same on every rank. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/engine/step_tail.h"
#include "pipeline/options/train_options.h"

namespace hadal {

// WithLoss and HighestLoss detect loss spikes. A step whose loss is far above those of the steps before is skipped,
// like a step that is not finite.
//
//   mean and variance   exponentially weighted over the losses of the n applied updates. With δ = loss − mean and
//                       weight a = max(1/window, 1/(n + 1)): mean += a·δ, variance = (1 − a)·(variance + a·δ²). While
//                       n < window these are the plain mean and variance.
//   spike               loss > mean + z·√variance, from the window-th update on; z is LossSpikeOptions::deviations
// Why: one bad batch can make a deep model diverge for good; skipping it costs one step. Skipped losses do not enter
// the mean, because otherwise one spike would hide the next. The decision depends only on the step's loss and on
// numbers saved with the checkpoint, so all ranks and a resumed run decide alike. Source of the formulas: Finch,
// "Incremental calculation of weighted mean and variance", 2009, section 9.
// Returns the trend with one more loss.  REQUIRES: `loss` is finite.
LossTrend WithLoss(const LossTrend& trend, double loss, const LossSpikeOptions& options);

// The highest loss that is not a spike; infinity before `window` losses are known or if detection is off.
double HighestLoss(const LossTrend& trend, const LossSpikeOptions& options);

class RunHealth {
 public:
  // `plan` must outlive the object.
  RunHealth(const ModelPlan& plan, const HealthOptions& options) : plan_(plan), options_(options) {}

  // Must be called after each step. Returns a sentence if its update was skipped, else "". `trend`: of the losses of
  // all applied updates so far. `where`: LocateFailure's text (instruments/failed_step_search.h), "" if it was not
  // called; GoBack's error repeats it.
  std::string AfterStep(const StepResult& result, const LossTrend& trend, const std::string& where);
  // Sets the count of skipped steps in a row, as saved in the checkpoint of a resumed run.
  void Continue(int32_t skipped_in_a_row) { skipped_in_a_row_ = skipped_in_a_row; }
  int32_t skipped_in_a_row() const { return skipped_in_a_row_; }
  bool must_go_back() const { return skipped_in_a_row_ > 0 && skipped_in_a_row_ >= options_.skipped_steps; }

  // Returns the progress from which the run continues: `now`, with those fields of the loaded checkpoint's progress
  // that describe its weights. `loaded` = nullopt: there was no checkpoint. Errors: OutOfRange if there was none, or if
  // the run had already gone back to these weights.
  absl::StatusOr<TrainingProgress> GoBack(const TrainingProgress& now, const std::optional<TrainingProgress>& loaded);

 private:
  std::string WhyLeftOut(const GlobalGradient& gradient, const LossTrend& trend) const;

  const ModelPlan& plan_;
  HealthOptions options_;
  int64_t skipped_steps_ = 0;  // since this process began
  int32_t skipped_in_a_row_ = 0;
  std::string where_;          // the last search's result
  int64_t gone_back_to_ = -1;  // update number of the weights of the last rollback; -1: none
};

}  // namespace hadal
