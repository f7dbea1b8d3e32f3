// MaskedHead computes the loss of an encoder alone (masked-language modelling, Devlin et al. 2018, arXiv 1810.04805),
// and in training its gradients. As in output_head.h, Forward also adds the gradients of the weights and stores that of
// x in `saved`.
//
//   u = x at the masked rows    v = norm(act(u·Wᵀ + b))    logits = v·Eᵀ + c    loss = cross-entropy of the targets
// act and the norm are the block's. Only masked rows enter: they are the batch's target rows, PackedBatch::target_input
// has their rows of the source. A micro-batch without any has a loss and a gradient of 0.
// Shapes: x [source rows, d]; u, v [target rows, d]; W [d, d]; E [V, d], c [V]. Storage: x, u, v as
// ModelPlan::compute_storage; the gradient of x is fp32 until BackwardInput. Numerics: output_head.h,
// kernels/activation.h, kernels/residual_norm.h; kernels/embedding.h gathers rows and scatters their gradients.
#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "layers/branch_parts.h"
#include "layers/output_head.h"

namespace hadal {

class MaskedHead final : public OutputHead {
 public:
  MaskedHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena) override;
  int64_t saved_bytes() const override { return saved_bytes_; }
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // Rows of one of the matrices below.
  AnyMatrix Rows(void* data, int64_t rows) const { return {data, rows, width_, storage_}; }
  // The gradients behind v: `d_v` is overwritten.
  void Backward(const SublayerContext& context, AnyMatrix d_v, Matrix d_x) const;

  int32_t weight_, bias_;  // parameters; bias −1: none
  PlainNorm norm_;
  Activation activation_;
  Storage storage_;
  int64_t width_, saved_bytes_;
  ArenaSlice gathered_slice_, product_slice_, activated_slice_, statistics_slice_;
  // [target rows, d]: u, and later its gradient; u·Wᵀ + b, and later its gradient; act(u·Wᵀ + b).
  void *gathered_ = nullptr, *product_ = nullptr, *activated_ = nullptr;
  float* statistics_ = nullptr;  // [2 · target rows]
};

}  // namespace hadal
