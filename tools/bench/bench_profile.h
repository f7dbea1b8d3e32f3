// `hadal bench profile` measures on this machine the costs that the planner needs for one config, and writes them as a
// profile (configs/machine.proto) for `hadal plan --profile`.
//
// What: runs micro-batches of the config's corpus through a real stage (pipeline/engine/engine.h) of the config's
// model, with fewer layers, but enough to exceed the caches. The stage calls its progress hook between sublayers; the
// clock is read there, so that each kind of sublayer gets its own time, with residual connections and cache misses
// included. Whole training steps, measured in alternation with that, give the time of the step's tail (gradient norm
// and update) and the totals to which the sublayers' times are scaled. All is measured without and with recomputation.
// Under mpirun all ranks measure at the same time, as they compute at the same time in a run. Costs are means over the
// ranks of medians over the rounds; pairs of ranks also time messages.
// Threads: the stream's. Blocking: all ranks call it together.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "pipeline/options/train_options.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/corpus.h"
#include "runtime/stream.h"

namespace hadal {

struct BenchProfileOptions {
  TrainOptions train;  // its model has the vocabulary sizes
  int halvings = 0;    // also measures micro-batches of 1/2 … 1/2^halvings the tokens
  int rounds = 7;      // repetitions of each measurement
  // Bytes that each rank of a run holds and this measurement does not: the vocabularies, for checkpoints.
  int64_t carried_bytes = 0;
};

// Returns the profile, the same on every rank.
// Errors: ResourceExhausted; those of a training step.
absl::StatusOr<config::Profile> MeasureProfile(const BenchProfileOptions& options, const Corpus& corpus,
                                               Communicator& communicator, const Stream& stream);

// Returns `model` with the fewest layers that have at least `elements` parameters, or with all its layers.
ModelOptions ShallowModel(const ModelOptions& model, int64_t elements);

}  // namespace hadal
