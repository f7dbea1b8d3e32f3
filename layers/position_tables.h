// The fixed tables of positions, in the arena's memory: the host computes them once in double precision, so that no
// run depends on a device's sines.
#pragma once

#include "kernels/attention_reach.h"
#include "kernels/rotary.h"
#include "layers/model_plan.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

// Fills a table that is added to embeddings.
void PlacePositions(const Arena& arena, Matrix positions);

// The angles of self-attention, of global layers and of local ones; one object for each arena program of a rank
// (runtime/arena.h).
class RotaryTables {
 public:
  RotaryTables(const ModelPlan& plan, ArenaLayout& layout);
  void Bind(const Arena& arena);
  // For a layer that sees that far (ModelPlan::Reach). Nothing turns unless the model's positions are rotary.
  const Rotary& Of(int32_t reach) const {
    return reach == kWholeSentence || local_.theta == 0 ? global_.rotary : local_.rotary;
  }

 private:
  struct Table {
    double theta = 0;  // 0: no table
    RotaryScaling scaling;
    ArenaSlice slice;
    Rotary rotary;
  };

  int64_t positions_, columns_;
  Table global_, local_;
};

}  // namespace hadal
