// The tail of an attention branch, from the heads' contexts to its output:
//
//   y = post( inner( g ⊙ c )·W_oᵀ + b_o )       c [R, d] the contexts side by side
//     g      one learned scalar a head          NormFormer (Shleifer et al. 2021; before W_o, as in the paper)
//     inner  LayerNorm over d                   Sub-LN (Magneto, arXiv 2210.06423 section 2)
//     post   LayerNorm over d                   NormFormer
// each of the three only where the method has it. Without `post` the bias is left to the residual connection's kernel.
//
// Saved, in this order and each only where it exists: g ⊙ c [R, d]; inner's output [R, d] and statistics [2R]; post's input
// [R, d] and statistics [2R].
// Thread safety: const; one micro-batch at a time a workspace.
#pragma once

#include <cstdint>

#include "layers/inner_norm.h"
#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class AttentionOutput {
 public:
  // REQUIRES: an attention sublayer.
  AttentionOutput(const ModelPlan& plan, int32_t sublayer);

  int64_t SavedFloats(int64_t rows) const { return At(rows).end; }
  // y (=).
  void Forward(const SublayerContext& context, ConstMatrix attended, float* saved, Matrix y) const;
  // d_attended (=); adds to the gradients of g and of both norms.
  void BackwardInput(const SublayerContext& context, ConstMatrix d_y, ConstMatrix attended, const float* saved,
                     Matrix d_attended) const;
  // Adds to the gradient of W_o, and of b_o where the bias is added here. Follows BackwardInput.
  void BackwardWeight(const SublayerContext& context, ConstMatrix d_y, ConstMatrix attended, const float* saved) const;
  // The parameter b_o, or -1 where it is added here or there is none.
  int32_t bias() const { return output_norm_.present() ? -1 : bias_; }

 private:
  // Offsets in floats into `saved`.
  struct Offsets {
    int64_t scaled = 0, normed = 0, normed_statistics = 0, projected = 0, projected_statistics = 0, end = 0;
  };
  Offsets At(int64_t rows) const;
  // What the inner norm, and what W_o, reads.
  ConstMatrix Scaled(ConstMatrix attended, const float* saved) const;
  ConstMatrix Normed(ConstMatrix attended, const float* saved) const;

  int64_t d_model_;
  int32_t weight_, bias_;  // W_o, b_o
  int32_t head_scale_;
  InnerNorm inner_norm_, output_norm_;
};

}  // namespace hadal
