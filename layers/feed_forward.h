// Feed-forward: y = inner(dropout(relu((x − s_1)·W_1ᵀ + b_1 − s_2)))·W_2ᵀ (b_2 is added by the residual connection); inner: a
// LayerNorm over d_ff (Sub-LN, NormFormer) or a shift by s_3, where the method has one. s_1, s_2, s_3: R-Fixup's scalars (Zhang,
// Dauphin and Ma 2019), which has no biases.
// Source: Vaswani et al. 2017 eq. 2.
// Saved: the hidden layer after ReLU and dropout [R, d_ff]; its zeros are the backward's mask. Then, where they exist, what W_2
// reads instead [R, d_ff], the inner norm's statistics [2R], the shifted input [R, d] and the bias of the hidden layer [d_ff].
#pragma once

#include "layers/branch.h"
#include "layers/inner_norm.h"
#include "layers/input_shift.h"

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
  int32_t output_bias() const override { return contraction_bias_; }

 private:
  // Offsets in floats into `saved`.
  struct Offsets {
    int64_t inner = 0, statistics = 0, shifted = 0, bias = 0, end = 0;
  };
  Offsets At(int64_t rows) const;
  // What W_2 reads.
  ConstMatrix Inner(const float* saved, int64_t rows) const;
  // d_hidden: of what W_2 reads, turned into that of the first product's output.
  void BackwardHidden(const SublayerContext& context, const float* saved, Matrix d_hidden) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t hidden_weight_, hidden_bias_, contraction_weight_, contraction_bias_;  // parameters
  InputShift input_shift_, contraction_shift_;
  int32_t hidden_shift_;  // parameter
  InnerNorm hidden_norm_;
  int64_t d_model_, d_ff_;
  double dropout_;
};

}  // namespace hadal
