#include "pipeline/learning_rate.h"
#include "runtime/math.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hadal {
namespace {

double WarmUp(const RateOptions& options, double t) {
  return options.warmup_initial_rate + t * (options.peak - options.warmup_initial_rate) / options.warmup_updates;
}

double InverseSqrt(const RateOptions& options, double t) {
  const double warmup = options.warmup_updates;
  return options.peak * std::sqrt(std::max(warmup, 1.0) / std::max(t, 1.0));
}

double HalfCosine(double progress) { return (1 + Cos(std::numbers::pi * progress)) / 2; }

double Shape(DecayShape shape, double progress) {
  switch (shape) {
    case DecayShape::kLinear:
      return 1 - progress;
    case DecayShape::kOneMinusSqrt:
      return 1 - std::sqrt(progress);
    case DecayShape::kCosine:
      return HalfCosine(progress);
  }
  return 0;
}

// The last `decay` of `total` updates go from the peak to the end.
double Decay(const RateOptions& options, DecayShape shape, double t, double total, double decay) {
  if (total <= 0 || decay <= 0) return options.peak;
  const double progress = std::clamp((t - (total - decay)) / decay, 0.0, 1.0);
  return options.end_rate + (options.peak - options.end_rate) * Shape(shape, progress);
}

double Polynomial(const RateOptions& options, double t, double total) {
  const double warmup = options.warmup_updates;
  if (t < warmup) return options.peak * t / warmup;
  if (total <= warmup) return options.peak;
  const double left = std::max(0.0, 1 - (t - warmup) / (total - warmup));
  return (options.peak - options.end_rate) * Pow(left, options.power) + options.end_rate;
}

}  // namespace

double LearningRate(const RateOptions& options, int64_t update, int64_t total_updates) {
  const double t = static_cast<double>(update - 1), total = static_cast<double>(total_updates);
  const bool polynomial = options.schedule == RateSchedule::kPolynomial;
  if (!polynomial && options.schedule != RateSchedule::kTFixup && t < options.warmup_updates) return WarmUp(options, t);
  switch (options.schedule) {
    case RateSchedule::kInverseSqrt:
      return InverseSqrt(options, t);
    case RateSchedule::kPolynomial:
      return Polynomial(options, t, total);
    case RateSchedule::kConstant:
      return options.peak;
    case RateSchedule::kCosine:
      return Decay(options, DecayShape::kCosine, t, total, total - options.warmup_updates);
    case RateSchedule::kWsd:
      return Decay(options, options.decay_shape, t, total, options.decay_updates);
    case RateSchedule::kTFixup:
      return options.peak * std::sqrt(4000.0 / (4000.0 + t));
  }
  return 0;
}

}  // namespace hadal
