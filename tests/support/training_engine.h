// Makes the engines of tests that train.
#pragma once

#include "pipeline/engine/engine.h"

namespace hadal {

// Waits no longer than a minute. `plan` and `pipeline` must outlive the engine.
inline absl::StatusOr<std::unique_ptr<Engine>> TrainingEngine(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                              Communicator& world,
                                                              const Stream& stream = Stream::Cpu(1)) {
  return Engine::Create({.plan = plan,
                         .pipeline = pipeline,
                         .stream = stream,
                         .purpose = Purpose::kTraining,
                         .world = world,
                         .timeout = absl::Seconds(60)});
}

}  // namespace hadal
