#include "pipeline/instruments/recording_schedule.h"

#include <algorithm>
#include <cmath>

namespace hadal {
namespace {

// How many of the points dense·10^(k / per_decade), k ≥ 0, are at most `step`.  The sum keeps whole decades on their
// side of a rounding.
int64_t PointsUpTo(double dense, int32_t per_decade, int64_t step) {
  const double position = std::log10(static_cast<double>(step) / dense) * per_decade;
  return position < 0 ? 0 : 1 + static_cast<int64_t>(std::floor(position + 1e-9));
}

}  // namespace

bool IsRecordingStep(const DepthOptions& options, int64_t step) {
  if (!options.enabled) return false;
  if (step < options.dense_steps) return true;
  if (options.per_decade == 0 || step == 0) return false;
  const double dense = static_cast<double>(std::max<int64_t>(options.dense_steps, 1));
  return PointsUpTo(dense, options.per_decade, step) > PointsUpTo(dense, options.per_decade, step - 1);
}

}  // namespace hadal
