// A second stream d beside the residual stream x, without norms between sublayers (ResiDual, arXiv 2304.14802; formulas
// after the authors' code, microsoft/ResiDual):
//
//   before the stack      d_0 = s·x_0
//   sublayer              x' = LN(r·x + f), d' = d + s·f, f = b·dropout(F(x) + bias)
//   behind the stack      y = x + LN(d)
// x is what sublayers read; d only adds up. With r = b = 1 this is ResiDual; s = 0.05 as in the authors' configuration
// for OPUS-100 (LN(d) is the same for every s but for its epsilon: the authors need s for fp16).
// Gradients: the gradient of d passes every sublayer unchanged, so one tensor g = ∂L/∂d serves the whole stack. The
// gradient of f is ∂L/∂(r·x + f) + s·g; that of x_0 includes s·g from d_0.
// Memory traffic: no extra pass within a sublayer. The residual connection's kernel (kernels/residual_norm.h) also
// reads d and writes d' in its pass forward, and reads g in its pass backward; recomputation does not touch d. After
// the stack there are two more passes forward (LN(d); x + LN(d)) and one backward (g).
// Storage: d and g fp32, because d is a sum over the whole depth; x as ModelPlan::residual_storage.
//
// SecondStreamEnd is the chunk part after the stack. Shapes [R, width]: x the residual stream, `second` the stream d,
// y = x + LN(d) in the type that products read. Backward writes g to d_second (=) and does not change d_y, which is
// also the gradient of x. Saved: mean and rstd of d's rows. Backward reads d again.
// Thread safety: const after construction.
// (Several residual streams that every sublayer reads and writes are another method: hyper_segment.cc.)
#pragma once

#include <cstdint>

#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"

namespace hadal {

class SecondStreamEnd final : public ChunkPart {
 public:
  // For the stack whose last sublayer is `last`. `rows`: the most rows R. REQUIRES: plan.HasSecondStream(the stack).
  SecondStreamEnd(const ModelPlan& plan, int32_t last, int64_t rows);

  int64_t saved_bytes() const override { return 2 * rows_ * static_cast<int64_t>(sizeof(float)); }
  struct CloseArgs {
    ConstAnyMatrix x;    // [R, width]
    ConstMatrix second;  // the stream d [R, width]
    AnyMatrix normed;    // scratch [R, width] for LN(d), in the type that products read
    float* statistics;   // [2·R] (=): mean and rstd
    AnyMatrix y;         // [R, width] (=)
  };
  // y = x + LN(second).
  void Close(const Stream& stream, const ParameterStore& parameters, const CloseArgs& args) const;
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  PlainNorm norm_;
  int64_t rows_;
};

}  // namespace hadal
