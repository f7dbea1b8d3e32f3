// OutputHead computes the loss of text: logits = x·Eᵀ (no bias), cross-entropy with label smoothing, and in training
// its gradients. A part (chunk_part.h) that reads x.
//
// The loss's scale (1 / target tokens of the step) is known beforehand, so Forward also computes the gradients: it adds
// to dE, and stores dx in `saved`, from where backward copies it to d_x. Forwards run in ascending micro-batch order in
// every schedule, so dE is summed in that order.
// Logits are computed for Workspace::logit_rows() rows at a time: first the logits and their loss, then their gradient
// in place, then its products for dx and dE. So all logits never exist at once, and no product is computed twice.
// Shapes: x [target rows, d] as ModelPlan::compute_storage, its gradient as the decoder's residual stream; E and dE
// [V, d], V the vocabulary. Numerics: kernels/cross_entropy.h; row blocks are fixed, and each adds to dE in ascending
// order.
#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/parameter_store.h"

namespace hadal {

struct LossSums {
  double loss = 0;  // Σ over target tokens, label-smoothed, natural logarithm
  double nll = 0;   // Σ of −log p(target)
  int64_t tokens = 0;
  int64_t hits = 0;  // of an encoder alone: tokens of which no logit is larger than the target's

  void Add(const LossSums& other) {
    loss += other.loss;
    nll += other.nll;
    tokens += other.tokens;
    hits += other.hits;
  }
  // Per target token.
  double MeanLoss() const { return loss / static_cast<double>(tokens > 0 ? tokens : 1); }
  double MeanNll() const { return nll / static_cast<double>(tokens > 0 ? tokens : 1); }
};

// adaptive_head.h is a subclass for an adaptive softmax.
class OutputHead : public ChunkPart {
 public:
  OutputHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose);

  int64_t saved_bytes() const override { return saved_bytes_; }
  // Writes each row's loss to the workspace. Outside training there is no gradient, and `saved` may be null.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;
  // Copies the losses of the last Forward to the workspace's host memory; on a device only enqueues the copy. REQUIRES:
  // Losses has been called for the previous batch.
  void FetchLosses(const SublayerContext& context) const;
  // Adds up the fetched losses of the batch, in double, in row order.  REQUIRES: the copy is done. `row_nll`, unless
  // empty, receives each row's nll [target rows without padding].
  LossSums Losses(const SublayerContext& context, Vector row_nll) const;

 protected:
  // Computes logits and losses of all target rows from what the table's product reads, and in training d_x (=) and the
  // table's gradient.
  void ForwardRows(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix d_x) const;

  int32_t sublayer_;
  int32_t table_;

 private:
  double label_smoothing_, z_loss_;
  int32_t logit_bias_;        // parameter, or −1
  Storage gradient_storage_;  // of x's
  int64_t saved_bytes_;
};

// The loss of an encoder alone (masked-language modelling, Devlin et al. 2018, arXiv 1810.04805), and in training its
// gradients. As OutputHead, Forward also adds the gradients of the weights and stores that of x in `saved`.
//
//   u = x at the masked rows    v = norm(act(u·Wᵀ + b))    logits = v·Eᵀ + c    loss = cross-entropy of the targets
// act and the norm are the block's. Only masked rows enter: they are the batch's target rows, PackedBatch::target_input
// has their rows of the source. A micro-batch without any has a loss and a gradient of 0.
// Shapes: x [source rows, d]; u, v [target rows, d]; W [d, d]; E [V, d], c [V]. Storage: x, u, v as
// ModelPlan::compute_storage; the gradient of x is fp32 until BackwardInput. Numerics: kernels/activation.h,
// kernels/residual_norm.h; kernels/embedding.h gathers rows and scatters their gradients.
class MaskedHead final : public OutputHead {
 public:
  MaskedHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena) override { hadal::Bind(arena, gathered_, product_, activated_, statistics_); }
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
  // [target rows, d]: u, and later its gradient; u·Wᵀ + b, and later its gradient; act(u·Wᵀ + b).
  ArenaBuffer<std::byte> gathered_, product_, activated_;
  ArenaBuffer<float> statistics_;  // [2 · target rows]
};

}  // namespace hadal
