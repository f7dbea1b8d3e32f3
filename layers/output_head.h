// The output head: logits = x·Eᵀ (no bias), cross-entropy with label smoothing, and — in training — its gradients at
// once.
//
// Logits exist for Workspace::kLogitRows rows at a time: they are made, reduced to a loss, overwritten by their
// gradient and multiplied into dx and dE before the next rows, so that neither the whole logits nor a second product to
// rebuild them is ever needed (the loss's scale, 1 / target tokens of the step, is known beforehand). Backward
// therefore has nothing left to do but to hand over dx, and dE is accumulated in ascending micro-batch order in every
// schedule, as forwards run in that order too. Numerics: row blocks are fixed; losses are added in double in row order.
#pragma once

#include <cstdint>

#include "layers/sublayer_context.h"

namespace hadal {

struct LossSums {
  double loss = 0;  // Σ over target tokens, label-smoothed, natural logarithm
  double nll = 0;   // Σ of −log p(target)
  int64_t tokens = 0;

  void Add(const LossSums& other) {
    loss += other.loss;
    nll += other.nll;
    tokens += other.tokens;
  }
  // A token.
  double MeanLoss() const { return loss / static_cast<double>(tokens > 0 ? tokens : 1); }
  double MeanNll() const { return nll / static_cast<double>(tokens > 0 ? tokens : 1); }
};

class OutputHead {
 public:
  explicit OutputHead(const ModelPlan& plan);

  // x [target rows, d] as ModelPlan::compute_storage, d_x as the decoder's stream. In training d_x (=) receives the gradient and this
  // use's table gradient is added to; otherwise d_x is not touched and may be empty. Leaves the loss of each row in the workspace.
  // Asynchronous on a device.
  void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix d_x) const;
  // Adds up what the last Forward left, of the same batch. Blocking. `row_nll`: where not empty, receives each row's nll [the
  // sentences' target rows].
  LossSums Losses(const SublayerContext& context, Vector row_nll) const;

 private:
  int32_t sublayer_;
  int32_t table_;
  double label_smoothing_;
};

}  // namespace hadal
