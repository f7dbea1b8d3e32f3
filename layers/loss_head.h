// Makes a loss and its gradients from the decoder's residual stream, with a softmax over the vocabulary
// (output_head.h). An adaptive softmax would be another loss head.
//
// The loss's scale (1 / target tokens of the step) is known beforehand, so the forward also makes the gradients, and
// backward only has to pass dx on. Weight gradients are added up in ascending micro-batch order in every schedule,
// because forwards run in that order in every schedule.
// Thread safety: const; one micro-batch at a time a workspace.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/tensor.h"

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
  // Per target token.
  double MeanLoss() const { return loss / static_cast<double>(tokens > 0 ? tokens : 1); }
  double MeanNll() const { return nll / static_cast<double>(tokens > 0 ? tokens : 1); }
};

class LossHead {
 public:
  virtual ~LossHead() = default;

  // x [target rows, d] as ModelPlan::compute_storage, d_x as the decoder's residual stream. In training writes the
  // gradient to d_x (=) and adds to the gradients of the head's parameters; otherwise d_x is not touched and may be
  // empty. Leaves each row's loss in the workspace. Asynchronous on a device.
  virtual void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix d_x) const = 0;
  // Adds up the losses that Forward has left for the same batch, in double, in row order. Blocking. `row_nll`, unless
  // empty, receives each row's nll [target rows without padding].
  virtual LossSums Losses(const SublayerContext& context, Vector row_nll) const = 0;
};

// The head of plan.sublayers[plan.output_head()].
std::unique_ptr<LossHead> MakeLossHead(const ModelPlan& plan);

}  // namespace hadal
