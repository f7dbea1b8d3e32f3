// Self-attention: y = Concat_h(softmax(q_h·k_hᵀ/sqrt(D))·v_h)·W_oᵀ with q|k|v = x·W_qkvᵀ + b (one product). Causal in
// the decoder. Some methods add operations around W_o (attention_output.h); R-Fixup shifts the input of W_qkv
// (input_shift.h).
// Source: Vaswani et al. 2017 section 3.2.
// Shapes: x, y [R, d]; H heads of D = d / H. Numerics, order of accumulation, threads: branch.h, kernels/attention.h.
// Saved: q|k|v [R, 3d], attended [R, d] (the heads' outputs), log-sum-exp [R, H], the shifted input [R, d], then
// AttentionOutput's tensors.
#pragma once

#include "layers/attention_output.h"
#include "layers/branch.h"
#include "layers/input_shift.h"
#include "layers/saved_tensors.h"

namespace hadal {

class SelfAttention : public Branch {
 public:
  SelfAttention(const ModelPlan& plan, int32_t sublayer);

  int64_t SavedBytes(const ActivationCapacity& capacity) const override;
  void Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix y) const override;
  void BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, const std::byte* saved, bool accumulate,
                     AnyMatrix d_x) const override;
  void BackwardWeight(const SublayerContext& context, ConstAnyMatrix x, ConstAnyMatrix d_y,
                      const std::byte* saved) const override;
  int32_t output_bias() const override { return output_.bias(); }

 private:
  template <typename Byte>
  struct Saved {
    SavedMatrix<Byte> qkv, attended;
    MatrixOf<SavedFloat<Byte>> log_sum_exp;
    SavedMatrix<Byte> shifted;
    Byte* output;
    int64_t bytes;
  };
  template <typename Byte>
  Saved<Byte> Views(Byte* saved, int64_t rows) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t qkv_weight_, qkv_bias_;  // parameters; q, k, v are consecutive
  InputShift shift_;
  AttentionOutput output_;
  Storage storage_;
  int64_t d_model_;
  int32_t heads_;
  double dropout_;
};

}  // namespace hadal
