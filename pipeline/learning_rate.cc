#include "pipeline/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace hadal {
namespace {

double InverseSqrt(const RateOptions& options, double t) {
  const double warmup = options.warmup_updates;
  if (t < warmup) return options.warmup_initial_rate + t * (options.peak - options.warmup_initial_rate) / warmup;
  return options.peak * std::sqrt(std::max(warmup, 1.0) / std::max(t, 1.0));
}

double Polynomial(const RateOptions& options, double t, double total) {
  const double warmup = options.warmup_updates;
  if (t < warmup) return options.peak * t / warmup;
  if (total <= warmup) return options.peak;
  const double left = std::max(0.0, 1 - (t - warmup) / (total - warmup));
  return (options.peak - options.end_rate) * std::pow(left, options.power) + options.end_rate;
}

}  // namespace

double LearningRate(const RateOptions& options, int64_t update, int64_t total_updates) {
  const double t = static_cast<double>(update - 1);
  switch (options.schedule) {
    case RateSchedule::kInverseSqrt:
      return InverseSqrt(options, t);
    case RateSchedule::kPolynomial:
      return Polynomial(options, t, static_cast<double>(total_updates));
    case RateSchedule::kTFixup:
      return options.peak * std::sqrt(4000.0 / (4000.0 + t));
  }
  return 0;
}

}  // namespace hadal
