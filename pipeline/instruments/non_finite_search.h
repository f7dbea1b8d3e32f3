// Finds the first value of a failed step that was not finite: layer, sublayer, direction, tensor.
//
// A step is a function of (seed, step, weights), and a failed one changes no weights. So the step is run again without
// an update, with an observer that checks every tensor; other steps have no overhead. "First" means first in the lowest
// micro-batch affected: forward in order of depth, then backward in reverse, however the schedule interleaves
// micro-batches. If the repeated step is finite, the cause is the machine, not the model; the text says so. Threads:
// one per rank. Collective and blocking.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "pipeline/engine/engine.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// Returns "forward, decoder layer 3 cross-attention, F(x) (micro-batch 2)", say; the same on every rank.
// `batches`, `scalars`, `update`: those of the step that was not finite. Errors: those of the step.
absl::StatusOr<std::string> LocateNonFinite(Engine& engine, std::span<const PackedBatch> batches,
                                            const StepScalars& scalars, UpdateSettings update,
                                            Collectives& collectives);

}  // namespace hadal
