// Decides at which steps the instruments record: at all of the first steps, where deep models fail, then evenly spaced
// on a logarithmic axis.
//
// A pure function of the step, so a resumed run records at the same steps as an uninterrupted one.
#pragma once

#include <cstdint>

#include "pipeline/options/train_options.h"

namespace hadal {

// True for steps s < dense_steps, and then for s = ⌈dense_steps·10^(k / per_decade)⌉ for whole k ≥ 0.  REQUIRES: step ≥
// 0.
bool IsRecordingStep(const DepthOptions& options, int64_t step);

}  // namespace hadal
