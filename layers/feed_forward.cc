#include "layers/feed_forward.h"

#include "kernels/linear.h"

namespace hadal {

FeedForward::FeedForward(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      hidden_weight_(plan.sublayers[sublayer].first_parameter),
      contraction_weight_(hidden_weight_ + 2),
      d_ff_(plan.options.d_ff),
      dropout_(plan.options.activation_dropout) {}

int64_t FeedForward::SavedFloats(const ModelPlan& plan, const ActivationCapacity& capacity) const {
  return capacity.rows(stack_) * d_ff_;
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
  LinearForward(context.stream, {.x = hidden, .weight = parameters.Weight(contraction_weight_), .y = y});
}

void FeedForward::BackwardInput(const SublayerContext& context, ConstMatrix d_y, const float* saved, bool accumulate,
                                Matrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const Matrix d_hidden = context.workspace.inner_gradient(d_y.rows, d_ff_);
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
  LinearBackwardInput(context.stream, {.dy = d_y,
                                       .weight = parameters.Weight(contraction_weight_),
                                       .relu_output = ConstMatrix(saved, d_y.rows, d_ff_),
                                       .mask_scale = dropout.active() ? dropout.scale() : 1.0f,
                                       .dx = d_hidden});
  LinearBackwardInput(
      context.stream,
      {.dy = d_hidden, .weight = parameters.Weight(hidden_weight_), .accumulate = accumulate, .dx = d_x});
}

void FeedForward::BackwardWeight(const SublayerContext& context, ConstMatrix x, ConstMatrix d_y,
                                 const float* saved) const {
  const ParameterStore& parameters = context.parameters;
  LinearBackwardWeight(
      context.stream,
      {.dy = d_y, .x = ConstMatrix(saved, d_y.rows, d_ff_), .d_weight = parameters.Gradient(contraction_weight_)});
  LinearBackwardWeight(context.stream, {.dy = context.workspace.inner_gradient(d_y.rows, d_ff_),
                                        .x = x,
                                        .d_weight = parameters.Gradient(hidden_weight_),
                                        .d_bias = parameters.GradientVector(hidden_weight_ + 1)});
}

}  // namespace hadal
