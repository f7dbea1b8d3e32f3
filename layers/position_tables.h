// The fixed tables of positions, in the arena's memory: the host computes them once in double precision, so that no
// run depends on a device's sines.
#pragma once

#include "kernels/rotary.h"
#include "layers/model_plan.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

// Fills a table that is added to embeddings.
void PlacePositions(const Arena& arena, Matrix positions);

// The angles of self-attention; one for each program of a rank (runtime/arena.h).
class RotaryTable {
 public:
  RotaryTable(const ModelPlan& plan, ArenaLayout& layout);
  void Bind(const Arena& arena);
  // Nothing turns unless the model's positions are rotary.
  const Rotary& rotary() const { return rotary_; }

 private:
  int64_t positions_ = 0, columns_ = 0;  // 0: no table
  double theta_ = 0;
  ArenaSlice slice_;
  Rotary rotary_;
};

}  // namespace hadal
