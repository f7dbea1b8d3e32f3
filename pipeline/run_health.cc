#include "pipeline/run_health.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/status_macros.h"

namespace hadal {

LossTrend WithLoss(const LossTrend& trend, double loss, const LossSpikeOptions& options) {
  const double weight =
      std::max(1.0 / static_cast<double>(options.window), 1.0 / static_cast<double>(trend.losses + 1));
  const double difference = loss - trend.mean;
  return {.losses = trend.losses + 1,
          .mean = trend.mean + weight * difference,
          .variance = (1 - weight) * (trend.variance + weight * difference * difference)};
}

double HighestLoss(const LossTrend& trend, const LossSpikeOptions& options) {
  if (options.deviations <= 0 || trend.losses < options.window) return std::numeric_limits<double>::infinity();
  return trend.mean + options.deviations * std::sqrt(trend.variance);
}

std::string RunHealth::WhyLeftOut(const GlobalGradient& gradient, const LossTrend& trend) const {
  const int32_t parameter = gradient.first_bad_parameter;
  if (parameter >= 0) {
    return absl::StrCat("the gradient of ", plan_.ParameterName(parameter), " (",
                        plan_.SublayerName(plan_.parameters[parameter].sublayer), ") is not finite");
  }
  if (!gradient.finite) return "the loss is not finite";
  return absl::StrFormat("the loss %.4g lies %.1f deviations above the mean %.4g of the last updates",
                         gradient.loss.MeanLoss(), (gradient.loss.MeanLoss() - trend.mean) / std::sqrt(trend.variance),
                         trend.mean);
}

std::string RunHealth::AfterStep(const StepResult& result, const LossTrend& trend, const std::string& where) {
  if (result.applied) {
    skipped_in_a_row_ = 0;
    return "";
  }
  ++skipped_steps_;
  ++skipped_in_a_row_;
  if (!where.empty()) where_ = where;
  return absl::StrCat(WhyLeftOut(result.gradient, trend), "; the update was skipped (", skipped_in_a_row_,
                      " in a row, ", skipped_steps_, " since the start)");
}

absl::StatusOr<TrainingProgress> RunHealth::GoBack(const TrainingProgress& now,
                                                   const std::optional<TrainingProgress>& loaded) {
  if (!loaded || loaded->update == gone_back_to_) {
    return OutOfRangeError("step ", now.step, ": ", skipped_in_a_row_,
                           " steps in a row were left out (health.skipped_steps), ",
                           loaded ? absl::StrCat("again after going back to the weights of update ", loaded->update)
                                  : std::string("and there is no checkpoint to go back to"),
                           where_.empty() ? "" : ". ", where_,
                           "; try a lower learning_rate.peak, optimizer.clip_norm or a method made for this depth");
  }
  TrainingProgress progress = *loaded;
  progress.step = now.step;
  progress.epochs_done = now.epochs_done;
  progress.place = now.place;
  progress.training_data = now.training_data;
  progress.samples_seen = now.samples_seen;
  progress.target_tokens_seen = now.target_tokens_seen;
  progress.training_seconds = now.training_seconds;
  gone_back_to_ = progress.update;
  skipped_in_a_row_ = 0;
  return progress;
}

}  // namespace hadal
