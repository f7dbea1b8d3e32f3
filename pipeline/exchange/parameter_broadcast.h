// Initialises parameters: the pipeline's rank 0 computes every slice of every parameter and sends it to the rank of
// the pipeline that holds its parameter's state (PipelineLayout::OwnerOf).
//
// Each rank passes slices on to the next, so no rank needs memory for more than one slice of other ranks' parameters.
// Each replica does this separately, with the same result. A slice is a function of (plan, seed, parameter, slice), so
// the result does not depend on the layout.
// Threads: one. Blocking. Every rank of the pipeline calls it once, at the same place.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/parameter_store.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"

namespace hadal {

// Initialises the fp32 weights that this rank owns. Then call Engine::DistributeWeights, which sends them to the other
// ranks that use them. `communicator`: the pipeline's. Errors: those of Communicator::Wait.
absl::Status InitializeParameters(const PipelineLayout& pipeline, const ParameterStore& parameters, uint64_t seed,
                                  const Stream& stream, Communicator& communicator, absl::Duration timeout);

}  // namespace hadal
