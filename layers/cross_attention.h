// Cross-attention: queries from the residual stream, keys and values from the encoder's output m (not normalised
// again).
//   y = Concat_h(softmax(q_h·k_hᵀ/sqrt(D))·v_h)·W_oᵀ,  q = x·W_qᵀ + b_q,  k|v = m·W_kvᵀ + b_kv (one product)
// Shapes: x, y [Rt, d], m [Rs, d], Rt target and Rs source rows; H heads of D = d / H.
// Source: Vaswani et al. 2017 section 3.2. R-Fixup subtracts a scalar from the queries' input (input_shift.h).
// Saved: q [Rt, d], k|v [Rs, 2d], attended [Rt, d] (the heads' outputs), log-sum-exp [Rt, H], the shifted input [Rt,
// d].
// The gradients of the encoder's output are added in fp32, by the cross-attentions in descending sublayer order.
// Everything else: branch.h, kernels/attention.h.
#pragma once

#include "layers/branch.h"
#include "layers/input_shift.h"
#include "layers/saved_tensors.h"

namespace hadal {

class CrossAttention : public Branch {
 public:
  CrossAttention(const ModelPlan& plan, int32_t sublayer);

  int64_t SavedBytes(const ActivationCapacity& capacity) const override;
  void Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix y) const override;
  void BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, const std::byte* saved, bool accumulate,
                     AnyMatrix d_x) const override;
  void BackwardWeight(const SublayerContext& context, ConstAnyMatrix x, ConstAnyMatrix d_y,
                      const std::byte* saved) const override;
  int32_t output_bias() const override { return output_bias_; }

 private:
  template <typename Byte>
  struct Saved {
    SavedMatrix<Byte> query, key_value, attended;
    MatrixOf<SavedFloat<Byte>> log_sum_exp;
    SavedMatrix<Byte> shifted;
    int64_t bytes;
  };
  template <typename Byte>
  Saved<Byte> Views(Byte* saved, int64_t target_rows, int64_t source_rows) const;

  int32_t sublayer_;
  int32_t query_weight_, query_bias_, key_value_weight_, key_value_bias_, output_weight_, output_bias_;  // parameters
  InputShift shift_;
  Storage storage_;
  int64_t d_model_;
  int32_t heads_;
  double dropout_;
};

}  // namespace hadal
