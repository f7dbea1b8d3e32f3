// Where the first number of a bad step was not finite: layer, sublayer, direction, tensor.
//
// A step is a function of (seed, step, weights), and a bad one changes no weights: so it runs once more, applying
// nothing, with an observer that looks at every tensor. Good steps pay nothing. "First" is first in the lowest
// micro-batch that is concerned: forward in order of depth, then backward against it, whatever the order in which the
// schedule interleaves micro-batches. A step that is finite when computed again was spoilt by the machine, not by the
// model; the text says so.
// Threads: one a rank; collective; blocking.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "pipeline/engine.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// "forward, decoder layer 3 cross-attention, F(x) (micro-batch 2)"; the same on every rank.
// `batches`, `scalars`, `update`: those of the step that was not finite. Errors: those of the step.
absl::StatusOr<std::string> LocateNonFinite(Engine& engine, std::span<const PackedBatch> batches,
                                            const StepScalars& scalars, UpdateSettings update,
                                            Collectives& collectives);

}  // namespace hadal
