// Steps whose update was left out: what people are told of them, and when a run goes back to its last checkpoint.
//
//   after a step                              left out: a sentence that says why; not: the row of them ends
//   after `health.skipped_steps` in a row     back to weights, moments and update of the newest good checkpoint. Data
//                                             and random numbers go on after the steps that failed, since the same
//                                             steps again would fail again
//   again, from the same weights              the run ends
// Pure: the same on every rank. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/step_tail.h"
#include "pipeline/train_options.h"

namespace hadal {

class RunHealth {
 public:
  // `plan` must outlive the object.
  RunHealth(const ModelPlan& plan, const HealthOptions& options) : plan_(plan), options_(options) {}

  // A step is done; a sentence where its update was left out, else "". `trend`: of the losses, which a spike leaves as
  // it was. `where`: the first number that was not finite, where it has been looked for.
  std::string AfterStep(const StepResult& result, const LossTrend& trend, const std::string& where);
  int32_t skipped_in_a_row() const { return skipped_in_a_row_; }
  bool must_go_back() const { return skipped_in_a_row_ > 0 && skipped_in_a_row_ >= options_.skipped_steps; }

  // Where the run goes on, from `now`, when `loaded` has been loaded; nullopt: there was none.
  // Errors: OutOfRange where going back does not help.
  absl::StatusOr<TrainingProgress> GoBack(const TrainingProgress& now, const std::optional<TrainingProgress>& loaded);

 private:
  std::string WhyLeftOut(const GlobalGradient& gradient, const LossTrend& trend) const;

  const ModelPlan& plan_;
  HealthOptions options_;
  int64_t skipped_steps_ = 0;  // since the run began
  int32_t skipped_in_a_row_ = 0;
  int64_t gone_back_to_ = -1;  // update of the weights last gone back to
};

}  // namespace hadal
