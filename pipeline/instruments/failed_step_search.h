// Finds where a step failed: layer, sublayer, direction, tensor, and the last finite tensor in front of it.
//
// A step is a function of (seed, step, weights), and a failed one changes no weights. So the step is run again without
// an update, with an observer that checks every tensor; other steps have no overhead. "First" means first in the lowest
// micro-batch affected: forward in order of depth, then backward in reverse, however the schedule interleaves
// micro-batches. Every tensor before the first one is finite, so the last finite one is its predecessor in this order.
// A weight that is not finite is named as well: an earlier update, whose gradient was finite, made it so.
// If the step failed by a loss spike, all tensors are finite; then the sublayer with the largest growth of the
// residual stream is reported. If the repeated step is finite and has no loss spike, the likely cause is the machine,
// not the model; the text states this.
// Cost: one more step, a pass over every tensor in it, a few dozen bytes of memory for each, and a pass over the
// weights; three small exchanges. Threads: one per rank. Collective and blocking.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "pipeline/engine/engine.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// Returns "first number that is not finite: forward, decoder layer 3 cross-attention, F(x) (micro-batch 2); last finite
// tensor: forward, decoder layer 3 self-attention, output (root mean square 1.1)", for example; the same on every rank.
// `batches`, `scalars`, `update`: those of the failed step; `update.apply` is ignored. Errors: those of the step.
absl::StatusOr<std::string> LocateFailure(Engine& engine, std::span<const PackedBatch> batches,
                                          const StepScalars& scalars, UpdateSettings update, Collectives& collectives);

}  // namespace hadal
