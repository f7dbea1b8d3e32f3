// At which steps the instruments record: all of the first ones, where deep models fail, then ever fewer, evenly on a
// logarithmic axis.
//
// A pure function of the step, so that a resumed run records at the same steps as an undisturbed one.
#pragma once

#include <cstdint>

#include "pipeline/train_options.h"

namespace hadal {

// Steps s < dense_steps; after them s = ⌈dense_steps·10^(k / per_decade)⌉ for whole k ≥ 0.  REQUIRES: step ≥ 0.
bool IsRecordingStep(const DepthOptions& options, int64_t step);

}  // namespace hadal
