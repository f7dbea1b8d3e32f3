// Branch: the function F of the residual connection s = r·x + b·dropout(F(x)) + e: attention or feed-forward, without
// the sublayer's norm.
//
// Three methods, with the tensors and rules of a part's step (chunk_part.h): Forward stores in `saved` what backward
// needs; BackwardInput reads the gradient of its output and stores inner gradients in `pending`; BackwardWeight reads
// `pending` and d_y. The bias of the last product (out_proj.bias, fc2.bias) is not part of F: the residual connection's
// kernel adds it and sums its gradient, because that kernel reads the product anyway.
// Shapes: x, y and their gradients [R, d]; R = source rows in the encoder, target rows in the decoder.
// Storage: ModelPlan::compute_storage; d_x may also be stored as the residual stream.
// Thread safety: const; one micro-batch at a time per workspace. On a device, calls only launch kernels. No allocation.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/linear.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "layers/saved_tensors.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class Branch {
 public:
  virtual ~Branch() = default;

  // Bytes of `saved` and of `pending` for one micro-batch at full capacity.
  virtual SavedBytes BytesToSave(const ActivationCapacity& capacity) const = 0;
  virtual int64_t PendingBytes(const ActivationCapacity& capacity) const = 0;
  // y = F(x) without the last bias (=).
  virtual void Forward(const SublayerContext& context, const PartTensors& tensors) const = 0;
  // d_x (=, or += if `accumulate`) F'ᵀ·d_y; cross-attention also adds to d_encoder_output.
  virtual void BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const = 0;
  // Adds to the gradients of the branch's weights and inner biases.
  virtual void BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const = 0;
  // Returns the parameter of the last bias; -1 if the branch itself adds it, before its output norm.
  virtual int32_t output_bias() const = 0;
};

// Creates the branch of plan.sublayers[sublayer].  REQUIRES: an attention or feed-forward sublayer. The other functions
// create one kind each (self_attention.cc, cross_attention.cc, feed_forward.cc), and put a branch between the norms in
// front of it and behind it that some methods have (normed_branch.cc).
std::unique_ptr<Branch> MakeBranch(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeSelfAttention(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeCrossAttention(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeFeedForward(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeNormedBranch(const ModelPlan& plan, int32_t sublayer, std::unique_ptr<Branch> inner);

// Optional parts of a branch that only some residual methods use. Shapes: x, results and gradients are [R, W], W =
// d_model or d_ff, in the branch's type.

// LayerNorm inside a branch, for Sub-LN (Magneto, arXiv 2210.06423 section 2), NormFormer (Shleifer et al. 2021) and
// NormedBranch.
// Statistics [2·R]: mean, then rstd. Numerics: kernels/residual_norm.h, norm only.
class InnerNorm {
 public:
  // `scale`: the role of the norm's scale, which precedes its shift. present() is false if the sublayer lacks it.
  InnerNorm(const ModelPlan& plan, int32_t sublayer, ParameterRole scale) : scale_(plan.ParameterOf(sublayer, scale)) {}

  bool present() const { return scale_ >= 0; }
  // normed = LN(x) (=); writes the statistics. REQUIRES (also of Backward): present().
  void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix normed, float* statistics) const;
  // d_x = LN'(x)ᵀ·d_normed (=, or += if `accumulate`); may alias d_normed if it does not accumulate. Adds to the
  // gradients of scale and shift.
  void Backward(const SublayerContext& context, ConstAnyMatrix x, const float* statistics, ConstAnyMatrix d_normed,
                AnyMatrix d_x, bool accumulate = false) const;

 private:
  int32_t scale_;
};

// Subtracts a learned scalar b [1] from the input of a product, x − b, for R-Fixup (Zhang, Dauphin and Ma 2019). Does
// nothing for other methods. Numerics: kernels/shift_scale.h. dx may have the residual stream's type.
class InputShift {
 public:
  // present() is false if the sublayer has no parameter of this role.
  InputShift(const ModelPlan& plan, int32_t sublayer, ParameterRole role) : shift_(plan.ParameterOf(sublayer, role)) {}

  bool present() const { return shift_ >= 0; }
  // Writes x − b to `shifted` (=) and returns it. Without the scalar, returns x; `shifted` may then be empty.
  ConstAnyMatrix Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix shifted) const;
  // Returns the tensor that Forward returned.
  ConstAnyMatrix Read(ConstAnyMatrix x, ConstAnyMatrix shifted) const { return present() ? shifted : x; }
  // Computes the backward of `product`, which read the shifted input: dx (+)= dy·W, and adds to b's gradient. If
  // product.accumulate, uses branch_input_gradient of the workspace.
  void BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const;

 private:
  int32_t shift_;
};

// Computes the bias of the first feed-forward product, b_1 − b, in the product's type; writes it to `row` [1, d_ff] (=)
// and returns it. `bias`: the parameter b_1; −1: b_1 = 0.
ConstAnyVector MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                              AnyMatrix row);

}  // namespace hadal
