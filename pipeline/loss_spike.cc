#include "pipeline/loss_spike.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace hadal
