// The output head: logits = x·Eᵀ (no bias), cross-entropy with label smoothing, and in training their gradients.
//
// Processes Workspace::logit_rows() rows at a time: logits are computed, reduced to a loss, overwritten by their
// gradient and multiplied into dx and dE before the next rows. All logits never exist at once, and no product is
// computed twice.
// Shapes: x, dx [R, d], E and dE [V, d], V the vocabulary. Numerics: kernels/cross_entropy.h; row blocks are fixed and
// add to dE in ascending order. Threads, blocking: loss_head.h.
#pragma once

#include <cstdint>

#include "layers/loss_head.h"

namespace hadal {

class OutputHead final : public LossHead {
 public:
  explicit OutputHead(const ModelPlan& plan);

  void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix d_x) const override;
  LossSums Losses(const SublayerContext& context, Vector row_nll) const override;

 private:
  int32_t sublayer_;
  int32_t table_;
  double label_smoothing_;
};

}  // namespace hadal
