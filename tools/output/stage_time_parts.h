// The parts of a stage's time in a step, by the names that records have for them.
#pragma once

#include "runtime/metrics_sink.h"

namespace hadal {

struct StageTimePart {
  const char* name;
  double StageTimes::*seconds;
};
inline constexpr StageTimePart kStageTimeParts[] = {{"forward", &StageTimes::forward_seconds},
                                                    {"recompute", &StageTimes::recompute_seconds},
                                                    {"backward", &StageTimes::backward_seconds},
                                                    {"wait", &StageTimes::wait_seconds},
                                                    {"communication", &StageTimes::communication_seconds},
                                                    {"optimizer", &StageTimes::optimizer_seconds},
                                                    {"checkpoint", &StageTimes::checkpoint_seconds},
                                                    {"core_wait", &StageTimes::core_wait_seconds}};

}  // namespace hadal
