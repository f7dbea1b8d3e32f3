// Adam over every slice whose moments a rank keeps, in a few long runs of memory instead of one short range a
// parameter.
//
// Why: a layer of width 64 has 16 parameters, most shorter than what is worth splitting over threads. Neighbours in the
// arena (ParameterStore lays a sublayer's parameters back to back) are updated as one range; only tied tables interrupt
// it.
// Numerics: Adam's elements are independent, so that the runs change no bit. Threads: the stream's. Blocking; allocates
// nothing. Where somebody asks how large the update is, every block's old weights are kept in cache while Adam works on
// it and compared with the new ones: what is measured is the change itself, rounding included, and no bit of it
// changes.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/stage_state.h"
#include "pipeline/train_options.h"
#include "runtime/stream.h"

namespace hadal {

// What an update did to one slice, summed in double over blocks of fixed size in ascending order.
struct UpdateSize {
  double change_squares = 0;  // Σ (w_new − w_old)²
  double weight_squares = 0;  // Σ w_new²
};

struct ParameterUpdate {
  OptimizerOptions optimizer;
  double learning_rate = 0;
  double gradient_norm = 0;                  // global: decides clipping
  int64_t update = 1;                        // Adam's t
  std::vector<UpdateSize>* sizes = nullptr;  // receives one for each slice of state.updated(); null: nobody asks
};

// One update of state.updated().  REQUIRES: their gradients are summed over uses and replicas.
void UpdateParameters(const Stream& stream, const StageState& state, const ParameterUpdate& update);

}  // namespace hadal
