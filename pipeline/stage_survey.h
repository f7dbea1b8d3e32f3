// What every stage of the pipeline spent on a step and holds, brought together from all ranks.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/process_grid.h"
#include "runtime/comm/collectives.h"
#include "runtime/metrics_sink.h"

namespace hadal {

struct StageSurvey {
  std::vector<StageTimes> times;    // [stages] the mean over the stage's replicas
  std::vector<StageMemory> memory;  // [stages] the largest of them
};

// `times`, `memory`: this rank's. The result is the same on every rank.
// Blocking: every rank of `collectives` must call it.  Errors: those of transfers.
absl::StatusOr<StageSurvey> SurveyStages(const GridShape& grid, const StageTimes& times, const StageMemory& memory,
                                         Collectives& collectives);

}  // namespace hadal
