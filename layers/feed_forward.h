// Feed-forward: y = inner(dropout(relu(x·W_1ᵀ + b_1)))·W_2ᵀ (b_2 is added by the residual connection); inner: a LayerNorm
// over d_ff where the method has one (Sub-LN, NormFormer).
// Source: Vaswani et al. 2017 eq. 2.
// Saved: the hidden layer after ReLU and dropout [R, d_ff]; its zeros are the backward's mask. Then the inner norm's output
// [R, d_ff] and statistics [2R].
#pragma once

#include "layers/branch.h"
#include "layers/inner_norm.h"

namespace hadal {

class FeedForward : public Branch {
 public:
  FeedForward(const ModelPlan& plan, int32_t sublayer);

  int64_t SavedFloats(const ModelPlan& plan, const ActivationCapacity& capacity) const override;
  void Forward(const SublayerContext& context, ConstMatrix x, float* saved, Matrix y) const override;
  void BackwardInput(const SublayerContext& context, ConstMatrix d_y, const float* saved, bool accumulate,
                     Matrix d_x) const override;
  void BackwardWeight(const SublayerContext& context, ConstMatrix x, ConstMatrix d_y,
                      const float* saved) const override;
  int32_t output_bias() const override { return contraction_weight_ + 1; }

 private:
  // What W_2 reads.
  ConstMatrix Normed(const float* saved, int64_t rows) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t hidden_weight_, contraction_weight_;  // parameters; each is followed by its bias
  InnerNorm hidden_norm_;
  int64_t d_ff_;
  double dropout_;
};

}  // namespace hadal
