// A LayerNorm inside a branch F, in Sub-LN and NormFormer. present() is false in other methods.
//
// Source: Magneto (arXiv 2210.06423) section 2, NormFormer (Shleifer et al. 2021).
// Shapes: x, normed and gradients [R, W], W = d_model or d_ff; statistics [2·R]: mean, then rstd.
// Storage: x, normed and their gradients as ModelPlan::compute_storage. Numerics: kernels/residual_norm.h, the norm
// alone.
// Thread safety: const; one micro-batch at a time per workspace.
#pragma once

#include <cstdint>

#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class InnerNorm {
 public:
  // `scale`: the role of the norm's scale; its shift follows. Absent if the sublayer has no such parameter.
  InnerNorm(const ModelPlan& plan, int32_t sublayer, ParameterRole scale) : scale_(plan.ParameterOf(sublayer, scale)) {}

  bool present() const { return scale_ >= 0; }
  // normed = LN(x); writes the statistics. REQUIRES (also for Backward): present().
  void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix normed, float* statistics) const;
  // Writes d_x = LN'(x)ᵀ·d_normed, which may alias d_normed; adds to the gradients of scale and shift.
  void Backward(const SublayerContext& context, ConstAnyMatrix x, const float* statistics, ConstAnyMatrix d_normed,
                AnyMatrix d_x) const;

 private:
  int32_t scale_;
};

}  // namespace hadal
