// Feed-forward: y = inner(dropout(relu((x − s_1)·W_1ᵀ + b_1 − s_2)))·W_2ᵀ (b_2 is added by the residual connection); inner: a
// LayerNorm over d_ff (Sub-LN, NormFormer) or a shift by s_3, where the method has one. s_1, s_2, s_3: R-Fixup's scalars (Zhang,
// Dauphin and Ma 2019), which has no biases.
// Source: Vaswani et al. 2017 eq. 2. Numerics, order of accumulation, threads: branch.h, kernels/linear.h.
// Saved: the hidden layer after ReLU and dropout [R, d_ff]; its zeros are the backward's mask. Then, where they exist, what W_2
// reads instead [R, d_ff], the inner norm's statistics [2R], the shifted input [R, d] and the bias of the hidden layer [d_ff]. Where nothing
// but the ReLU stands between the two products (no activation dropout, norm or shift) and they are bf16, a bit for each element of the hidden
// layer too: the products write and read it (kernels/linear.h, ReluMaskArgs), where the device's library can (ModelPlan::relu_masks: at some
// size of micro-batch; at which, UsesMask asks). In fp32 a product takes too long for the trips that it spares to matter, and CPUs have none.
#pragma once

#include "layers/branch.h"
#include "layers/inner_norm.h"
#include "layers/input_shift.h"
#include "layers/saved_tensors.h"

namespace hadal {

class FeedForward : public Branch {
 public:
  FeedForward(const ModelPlan& plan, int32_t sublayer);

  int64_t SavedBytes(const ActivationCapacity& capacity) const override;
  void Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix y) const override;
  void BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, const std::byte* saved, bool accumulate,
                     AnyMatrix d_x) const override;
  void BackwardWeight(const SublayerContext& context, ConstAnyMatrix x, ConstAnyMatrix d_y,
                      const std::byte* saved) const override;
  int32_t output_bias() const override { return contraction_bias_; }

 private:
  template <typename Byte>
  struct Saved {
    SavedMatrix<Byte> hidden, inner, shifted, bias;  // but for the first, empty where they do not exist
    SavedFloat<Byte>* statistics = nullptr;
    Byte* mask = nullptr;
    int64_t bytes = 0;

    // What W_2 reads.
    SavedMatrix<Byte> Inner() const { return inner.empty() ? hidden : inner; }
  };
  template <typename Byte>
  Saved<Byte> Views(Byte* saved, int64_t rows) const;
  // Whether the products of `rows` rows write and read the mask.
  bool UsesMask(const SublayerContext& context, int64_t rows) const;
  // d_hidden: of what W_2 reads, turned into that of the first product's output.
  void BackwardHidden(const SublayerContext& context, const Saved<const std::byte>& s, AnyMatrix d_hidden) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t hidden_weight_, hidden_bias_, contraction_weight_, contraction_bias_;  // parameters
  InputShift input_shift_, contraction_shift_;
  int32_t hidden_shift_;  // parameter
  InnerNorm hidden_norm_;
  Storage storage_;
  int64_t d_model_, d_ff_;
  double dropout_;
  bool keeps_mask_;
};

}  // namespace hadal
