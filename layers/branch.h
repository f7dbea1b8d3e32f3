// F of the residual connection s = r·x + b·dropout(F(x)) + e: what a sublayer computes between its norms.
//
// Three verbs, with the tensors and the rules of a piece's step (piece.h). `Forward` keeps in `saved` what backward
// needs. `BackwardInput` takes the gradient of the branch's output and leaves inner gradients in `pending`.
// `BackwardWeight` reads them, and d_y. The last product's bias (out_proj.bias, fc2.bias) is added by the residual
// connection's kernel, which also sums the bias's gradient: that kernel reads the product anyway.
// Shapes: x, y and their gradients [R, d]; R = source rows in the encoder, target rows in the decoder.
// Storage: ModelPlan::compute_storage; d_x may also be stored as the residual stream.
// Thread safety: const; one micro-batch at a time a workspace. On a device it only launches. Allocates nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/linear.h"
#include "layers/model_plan.h"
#include "layers/piece.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

namespace hadal {

class Branch {
 public:
  virtual ~Branch() = default;

  // Bytes of `saved` and of `pending` for one micro-batch at full capacity.
  virtual int64_t SavedBytes(const ActivationCapacity& capacity) const = 0;
  virtual int64_t PendingBytes(const ActivationCapacity& capacity) const = 0;
  // y = F(x) without the last bias (=).
  virtual void Forward(const SublayerContext& context, const PieceTensors& tensors) const = 0;
  // d_x (=, or += if `accumulate`) F'ᵀ·d_y; cross-attention also adds to d_encoder_output.
  virtual void BackwardInput(const SublayerContext& context, const PieceTensors& tensors, bool accumulate) const = 0;
  // Adds to the gradients of the branch's weights and inner biases.
  virtual void BackwardWeight(const SublayerContext& context, const PieceTensors& tensors) const = 0;
  // The parameter that holds the last bias; -1 where the branch adds it itself.
  virtual int32_t output_bias() const = 0;
};

// The branch of plan.sublayers[sublayer].  REQUIRES: an attention or feed-forward sublayer; of the others: of the kind
// that the name says (self_attention.cc, cross_attention.cc, feed_forward.cc).
std::unique_ptr<Branch> MakeBranch(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeSelfAttention(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeCrossAttention(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeFeedForward(const ModelPlan& plan, int32_t sublayer);

// What follows are parts that some methods put inside a branch. x, results and gradients are [R, W], W = d_model or
// d_ff, stored as the branch's.

// A LayerNorm inside a branch, in Sub-LN (Magneto, arXiv 2210.06423 section 2) and NormFormer (Shleifer et al. 2021).
// Statistics [2·R]: mean, then rstd. Numerics: kernels/residual_norm.h, the norm alone.
class InnerNorm {
 public:
  // `scale`: the role of the norm's scale; its shift follows. Absent when the sublayer has no such parameter.
  InnerNorm(const ModelPlan& plan, int32_t sublayer, ParameterRole scale) : scale_(plan.ParameterOf(sublayer, scale)) {}

  bool present() const { return scale_ >= 0; }
  // normed = LN(x) (=); writes the statistics. REQUIRES (also of Backward): present().
  void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix normed, float* statistics) const;
  // d_x = LN'(x)ᵀ·d_normed (=), may alias d_normed; adds to the gradients of scale and shift.
  void Backward(const SublayerContext& context, ConstAnyMatrix x, const float* statistics, ConstAnyMatrix d_normed,
                AnyMatrix d_x) const;

 private:
  int32_t scale_;
};

// A learned scalar b [1] subtracted from what a product reads, x − b, in R-Fixup (Zhang, Dauphin and Ma 2019). In other
// methods the product reads x itself. Numerics: kernels/shift_scale.h. dx may be stored as the residual stream.
class InputShift {
 public:
  // Absent when the sublayer has no parameter of this role.
  InputShift(const ModelPlan& plan, int32_t sublayer, ParameterRole role) : shift_(plan.ParameterOf(sublayer, role)) {}

  bool present() const { return shift_ >= 0; }
  // Writes the shifted copy (=) and returns it. Without the scalar: returns x, and `shifted` may be empty.
  ConstAnyMatrix Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix shifted) const;
  // What Forward returned.
  ConstAnyMatrix Read(ConstAnyMatrix x, ConstAnyMatrix shifted) const { return present() ? shifted : x; }
  // Backward of `product`, which read the shifted input: dx (+)= dy·W, and b's gradient. With product.accumulate it
  // uses branch_input_gradient of the workspace.
  void BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const;

 private:
  int32_t shift_;
};

// Makes the bias of the first feed-forward product, b_1 − b, as one row stored as the product is; fills `row` [1, d_ff]
// (=) and returns it. `bias`: the parameter b_1; −1 stands for b_1 = 0.
ConstAnyVector MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                              AnyMatrix row);

}  // namespace hadal
