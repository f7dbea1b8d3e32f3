// What makes a loss, and its gradients, out of the decoder's stream: a softmax over the vocabulary (output_head.h). An adaptive softmax would
// be another.
//
// The loss's scale (1 / target tokens of the step) is known beforehand, so that the forward makes the gradients at once: backward has nothing
// left to do but to hand over dx. Weights' gradients accumulate in ascending micro-batch order in every schedule, as forwards run in
// that order too.
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
  // A token.
  double MeanLoss() const { return loss / static_cast<double>(tokens > 0 ? tokens : 1); }
  double MeanNll() const { return nll / static_cast<double>(tokens > 0 ? tokens : 1); }
};

class LossHead {
 public:
  virtual ~LossHead() = default;

  // x [target rows, d] as ModelPlan::compute_storage, d_x as the decoder's stream. In training d_x (=) receives the gradient and those of the
  // head's parameters are added to; otherwise d_x is not touched and may be empty. Leaves the loss of each row in the workspace.
  // Asynchronous on a device.
  virtual void Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix d_x) const = 0;
  // Adds up what the last Forward left, of the same batch, in double in row order. Blocking. `row_nll`: where not empty, receives each row's
  // nll [the sentences' target rows].
  virtual LossSums Losses(const SublayerContext& context, Vector row_nll) const = 0;
};

// The head of plan.sublayers[plan.output_head()].
std::unique_ptr<LossHead> MakeLossHead(const ModelPlan& plan);

}  // namespace hadal
