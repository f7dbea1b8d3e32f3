// Feed-forward: y = inner(dropout(relu((x − s_1)·W_1ᵀ + b_1 − s_2)))·W_2ᵀ. The residual connection adds b_2.
//   inner           a LayerNorm over d_ff (Sub-LN, NormFormer), a shift by s_3 (R-Fixup), or nothing
//   s_1, s_2, s_3   R-Fixup's scalars (Zhang, Dauphin and Ma 2019; R-Fixup has no biases)
// Source: Vaswani et al. 2017 eq. 2. Numerics, order of accumulation, threads: branch.h, kernels/linear.h.
// Saved: the hidden layer after ReLU and dropout [R, d_ff], whose zeros are the backward's mask. Then, as far as they
// exist: the output of `inner` [R, d_ff], the statistics of the inner norm [2R], the shifted input [R, d], the bias b_1
// − s_2 [d_ff], and a bit mask of the ReLU.
// The bit mask (kernels/linear.h, ReluMaskArgs) exists if products are bf16, only the ReLU is between the two products
// (no activation dropout, norm or shift), and the device's library can write it for some size of micro-batch
// (ModelPlan::relu_masks); UsesMask checks the actual size. There is none in fp32, where products take so long that
// fewer passes over memory do not matter, and none on CPUs.
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
    SavedMatrix<Byte> hidden, inner, shifted, bias;  // all but `hidden` are empty if they do not exist
    SavedFloat<Byte>* statistics = nullptr;
    Byte* mask = nullptr;
    int64_t bytes = 0;

    // The input of W_2.
    SavedMatrix<Byte> Inner() const { return inner.empty() ? hidden : inner; }
  };
  template <typename Byte>
  Saved<Byte> Views(Byte* saved, int64_t rows) const;
  // Whether the products of `rows` rows write and read the mask.
  bool UsesMask(const SublayerContext& context, int64_t rows) const;
  // Whether BackwardInput computes b_1's gradient with the ReLU's: on a device that reads dx for the ReLU in any case.
  // Otherwise it is computed with W_1's.
  bool AddsBiasWithRelu(const SublayerContext& context, int64_t rows) const;
  // On entry d_hidden is the gradient of W_2's input, on return that of the first product's output.
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
