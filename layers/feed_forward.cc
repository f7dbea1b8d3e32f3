#include "layers/feed_forward.h"

#include "kernels/linear.h"

namespace hadal {

FeedForward::FeedForward(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      hidden_weight_(plan.sublayers[sublayer].first_parameter),
      contraction_weight_(hidden_weight_ + 2),
      hidden_norm_(plan, sublayer, ParameterRole::kHiddenNormScale),
      d_ff_(plan.options.d_ff),
      dropout_(plan.options.activation_dropout) {}

int64_t FeedForward::SavedFloats(const ModelPlan& plan, const ActivationCapacity& capacity) const {
  const int64_t rows = capacity.rows(stack_);
  return rows * d_ff_ + (hidden_norm_.present() ? rows * (d_ff_ + 2) : 0);
}

ConstMatrix FeedForward::Normed(const float* saved, int64_t rows) const {
  return {hidden_norm_.present() ? saved + rows * d_ff_ : saved, rows, d_ff_};
}

void FeedForward::Forward(const SublayerContext& context, ConstMatrix x, float* saved, Matrix y) const {
  const ParameterStore& parameters = context.parameters;
  const Matrix hidden(saved, x.rows, d_ff_);
  LinearForward(context.stream, {.x = x,
                                 .weight = parameters.Weight(hidden_weight_),
                                 .bias = parameters.WeightVector(hidden_weight_ + 1),
                                 .relu = true,
                                 .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation),
                                 .y = hidden});
  context.Observe({.tensor = DepthTensor::kHidden, .sublayer = sublayer_, .values = hidden});
  if (hidden_norm_.present()) {
    float* normed = saved + x.rows * d_ff_;
    hidden_norm_.Forward(context, hidden, Matrix(normed, x.rows, d_ff_), normed + x.rows * d_ff_);
  }
  LinearForward(context.stream, {.x = Normed(saved, x.rows), .weight = parameters.Weight(contraction_weight_), .y = y});
}

void FeedForward::BackwardInput(const SublayerContext& context, ConstMatrix d_y, const float* saved, bool accumulate,
                                Matrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const Matrix d_hidden = context.workspace.inner_gradient(d_y.rows, d_ff_);
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
  const ConstMatrix hidden(saved, d_y.rows, d_ff_);
  LinearBackwardInputArgs contraction{.dy = d_y, .weight = parameters.Weight(contraction_weight_), .dx = d_hidden};
  const float mask_scale = dropout.active() ? dropout.scale() : 1.0f;
  if (hidden_norm_.present()) {
    LinearBackwardInput(context.stream, contraction);
    hidden_norm_.Backward(context, hidden, saved + 2 * d_y.rows * d_ff_, d_hidden, d_hidden);
    ReluBackward(context.stream, {.relu_output = hidden, .mask_scale = mask_scale, .dx = d_hidden});
  } else {
    contraction.relu_output = hidden;
    contraction.mask_scale = mask_scale;
    LinearBackwardInput(context.stream, contraction);
  }
  LinearBackwardInput(
      context.stream,
      {.dy = d_hidden, .weight = parameters.Weight(hidden_weight_), .accumulate = accumulate, .dx = d_x});
}

void FeedForward::BackwardWeight(const SublayerContext& context, ConstMatrix x, ConstMatrix d_y,
                                 const float* saved) const {
  const ParameterStore& parameters = context.parameters;
  LinearBackwardWeight(context.stream,
                       {.dy = d_y, .x = Normed(saved, d_y.rows), .d_weight = parameters.Gradient(contraction_weight_)});
  LinearBackwardWeight(context.stream, {.dy = context.workspace.inner_gradient(d_y.rows, d_ff_),
                                        .x = x,
                                        .d_weight = parameters.Gradient(hidden_weight_),
                                        .d_bias = parameters.GradientVector(hidden_weight_ + 1)});
}

}  // namespace hadal
