// `hadal bench profile`: measures on this machine what the planner must know of it for one config, and writes it as a
// profile (configs/machine.proto) that `hadal plan --profile` reads.
//
// What: real micro-batches of the config's corpus go through a real stage (pipeline/engine/engine.h) of the config's
// model, in as few
//   layers as fill the caches as the whole would. Between sublayers the stage calls for progress of transfers; there
//   the clock is read, so that each kind of sublayer has its own seconds with joints, cache misses and all. The
//   engine's own training steps, measured in turn, give the tail, and the sums that the sublayers' seconds are scaled
//   to. Once without recomputation and once with it.
// Under mpirun every rank measures at the same time, as they will compute at the same time; costs are the ranks' mean,
// and pairs of
//   ranks exchange messages. Medians over the rounds.
// Threads: the stream's. Blocking: all ranks call it together.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "pipeline/plan/train_options.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/corpus.h"
#include "runtime/stream.h"

namespace hadal {

struct BenchProfileOptions {
  TrainOptions train;  // model with vocabularies, batch
  int halvings = 0;    // also micro-batches of 1/2 … 1/2^halvings the tokens
  int rounds = 7;
  // What each rank of a run holds and this measurement does not: the vocabularies, for checkpoints.
  int64_t carried_bytes = 0;
};

// The profile, the same on every rank.
// Errors: ResourceExhausted; what a training step can fail with.
absl::StatusOr<config::Profile> MeasureProfile(const BenchProfileOptions& options, const Corpus& corpus,
                                               Communicator& communicator, const Stream& stream);

// The config's model in fewer layers, enough to take `elements` parameters or all there are.
ModelOptions ShallowModel(const ModelOptions& model, int64_t elements);

}  // namespace hadal
