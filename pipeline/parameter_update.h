// Adam over every slice whose moments a rank keeps, in a few long runs of memory instead of one short range a parameter.
//
// Why: a layer of width 64 has 16 parameters, most shorter than what is worth splitting over threads. Neighbours in the arena
// (ParameterStore lays a sublayer's parameters back to back) are updated as one range; only tied tables interrupt it.
// Numerics: Adam's elements are independent, so that the runs change no bit. Threads: the stream's. Blocking; allocates nothing.
#pragma once

#include <cstdint>

#include "pipeline/stage_state.h"
#include "pipeline/train_options.h"
#include "runtime/stream.h"

namespace hadal {

struct ParameterUpdate {
  OptimizerOptions optimizer;
  double learning_rate = 0;
  double gradient_norm = 0;  // global: decides clipping
  int64_t update = 1;        // Adam's t
};

// One update of state.updated().  REQUIRES: their gradients are summed over uses and replicas.
void UpdateParameters(const Stream& stream, const StageState& state, const ParameterUpdate& update);

}  // namespace hadal
