// Optional parts of a branch (chunk_part.h) that only some residual methods use. Shapes: x, results and gradients are
// [R, W], W = d_model or d_ff, stored as ModelPlan::compute_storage.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "runtime/tensor.h"

namespace hadal {

// A norm with a kernel call of its own, not computed with a residual sum: inside a branch, for Sub-LN (Magneto, arXiv
// 2210.06423 section 2) and NormFormer (Shleifer et al. 2021), before and after a branch (MakeNormedBranch,
// chunk_part.h), and elsewhere, such as in hyper_segment.cc. Numerics: kernels/residual_norm.h without a branch.
class PlainNorm {
 public:
  // `scale`: parameter index of the norm's scale; −1: no norm. `gain`: the norm's factor k (kernels/residual_norm.h).
  // The second constructor looks up the sublayer's parameter of the role `scale`.
  explicit PlainNorm(int32_t scale = -1, float gain = 1) : scale_(scale), gain_(gain) {}
  PlainNorm(const ModelPlan& plan, int32_t sublayer, ParameterRole scale)
      : PlainNorm(plan.ParameterOf(sublayer, scale)) {}

  bool present() const { return scale_ >= 0; }
  // normed = LN(x) (=); writes `statistics` [2·R]: mean, then rstd. REQUIRES (also of Backward): present().
  void Forward(const Stream& stream, const ParameterStore& parameters, ConstAnyMatrix x, AnyMatrix normed,
               float* statistics) const;
  void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix normed, float* statistics) const {
    Forward(context.stream, context.parameters, x, normed, statistics);
  }
  // d_x = LN'(x)ᵀ·d_normed (=, or += if `accumulate`); may alias d_normed if it does not accumulate. Adds to the
  // gradients of scale and shift.
  void Backward(const SublayerContext& context, ConstAnyMatrix x, const float* statistics, ConstAnyMatrix d_normed,
                AnyMatrix d_x, bool accumulate = false) const;

 private:
  int32_t scale_;
  float gain_;
};

// The norms of the queries and keys of an attention, a head at a time (kernels/head_norm.h). Attention reads their
// results in the workspace: no micro-batch keeps them, and backward computes them again. Traffic, in elements of q and
// k: 2 forward (read, written), 5 backward.
class HeadNorms {
 public:
  HeadNorms(const ModelPlan& plan, int32_t sublayer)
      : query_scale_(plan.ParameterOf(sublayer, ParameterRole::kQueryNormScale)),
        key_scale_(plan.ParameterOf(sublayer, ParameterRole::kKeyNormScale)) {}

  struct Pair {
    ConstAnyMatrix q, k;
  };
  // Returns what attention reads: the normed q and k, in the workspace, or `raw` if the sublayer has no such norms.
  Pair Forward(const SublayerContext& context, const Pair& raw) const;
  // Replaces d_q and d_k, the gradients of what Forward returned, by those of `raw`. Adds to those of scale and
  // shift.
  void Backward(const SublayerContext& context, const Pair& raw, AnyMatrix d_q, AnyMatrix d_k) const;
  // For decoding: in place.
  void NormQueries(const Stream& stream, const ParameterStore& parameters, AnyMatrix q) const {
    Norm(stream, parameters, query_scale_, q, q);
  }
  void NormKeys(const Stream& stream, const ParameterStore& parameters, AnyMatrix k) const {
    Norm(stream, parameters, key_scale_, k, k);
  }

 private:
  // Does nothing without a norm.
  static void Norm(const Stream& stream, const ParameterStore& parameters, int32_t scale, ConstAnyMatrix x,
                   AnyMatrix y);

  int32_t query_scale_, key_scale_;  // -1: none
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
  // Computes the input half of the backward of `product`, which read the shifted input: dx = dy·W, or += if it
  // accumulates; adds to b's gradient. To accumulate, uses the workspace's branch_input_gradient as scratch.
  void BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const;

 private:
  int32_t shift_;
};

// For R-Fixup's shift b before the ReLU, relu(W_1·x + b_1 − b): writes b_1 − b to `row` [1, d_ff] (=), and returns it
// as a vector. `bias`, `shift`: indices of the parameters b_1 [d_ff] and b [1]; `bias` −1: b_1 = 0.
ConstAnyVector MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                              AnyMatrix row);

}  // namespace hadal
