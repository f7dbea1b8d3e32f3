// Makes a stack's residual stream out of a micro-batch, by embedding tokens (token_embedding.h). Frames of speech would
// be another front end.
// Thread safety: const; one micro-batch at a time a workspace.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

class FrontEnd {
 public:
  virtual ~FrontEnd() = default;

  virtual void Bind(const Arena& arena) = 0;
  // x [rows of the stack, d] (=).
  virtual void Forward(const SublayerContext& context, AnyMatrix x) const = 0;
  // Adds to the gradients of the front end's parameters.
  virtual void Backward(const SublayerContext& context, ConstAnyMatrix d_x) const = 0;
};

// The front end of plan.sublayers[sublayer]. Reserves in `layout` what it needs besides its parameters.
// REQUIRES: sublayer is plan.source_embedding() or plan.target_embedding().
std::unique_ptr<FrontEnd> MakeFrontEnd(const ModelPlan& plan, int32_t sublayer, ArenaLayout& layout);

}  // namespace hadal
