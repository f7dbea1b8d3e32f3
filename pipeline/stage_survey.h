// All-gathers the time of each part of a step and the memory of each stage over all ranks.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/options/grid_shape.h"
#include "runtime/comm/collectives.h"
#include "runtime/metrics_sink.h"

namespace hadal {

struct StageSurvey {
  std::vector<StageTimes> times;    // [stages] the mean over the stage's replicas
  std::vector<StageMemory> memory;  // [stages] the maximum over the stage's replicas
};

// `times`, `memory`: this rank's. The result is the same on every rank.
// Blocking: every rank of `collectives` must call it.  Errors: those of Communicator::Wait.
absl::StatusOr<StageSurvey> SurveyStages(const GridShape& grid, const StageTimes& times, const StageMemory& memory,
                                         Collectives& collectives);

}  // namespace hadal
