// Depth-aware initialisation on rank 0: it makes every slice of every parameter and streams it to the rank that owns
// it, hop by hop down the pipeline, so that nobody needs room for more than one slice of the rest of the model.
//
// Replicas do the same side by side, with the same result.
// Threads: one. Blocking. Every rank of the pipeline calls it once, in the same place. The result does not depend on
// the layout: a slice is a function of (plan, seed, parameter, slice).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/parameter_store.h"
#include "pipeline/pipeline_plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"

namespace hadal {

// Fills the fp32 weights this rank keeps. Engine::ShareWeights gives the other ranks what they read of them.
absl::Status InitializeParameters(const PipelinePlan& pipeline, const ParameterStore& parameters, uint64_t seed,
                                  const Stream& stream, Communicator& communicator, absl::Duration timeout);

}  // namespace hadal
