#include "layers/feed_forward.h"

#include "kernels/linear.h"
#include "kernels/shift_scale.h"

namespace hadal {

FeedForward::FeedForward(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      hidden_weight_(plan.ParameterOf(sublayer, ParameterRole::kHiddenWeight)),
      hidden_bias_(plan.ParameterOf(sublayer, ParameterRole::kHiddenBias)),
      contraction_weight_(plan.ParameterOf(sublayer, ParameterRole::kContractionWeight)),
      contraction_bias_(plan.ParameterOf(sublayer, ParameterRole::kContractionBias)),
      input_shift_(plan, sublayer, ParameterRole::kInputShift),
      contraction_shift_(plan, sublayer, ParameterRole::kContractionShift),
      hidden_shift_(plan.ParameterOf(sublayer, ParameterRole::kHiddenShift)),
      hidden_norm_(plan, sublayer, ParameterRole::kHiddenNormScale),
      d_model_(plan.options.d_model),
      d_ff_(plan.options.d_ff),
      dropout_(plan.options.activation_dropout) {
  HADAL_CHECK(!hidden_norm_.present() || !contraction_shift_.present());
}

FeedForward::Offsets FeedForward::At(int64_t rows) const {
  Offsets at{.end = rows * d_ff_};
  const auto reserve = [&](bool wanted, int64_t floats) {
    const int64_t offset = at.end;
    if (wanted) at.end += floats;
    return offset;
  };
  at.inner = reserve(hidden_norm_.present() || contraction_shift_.present(), rows * d_ff_);
  at.statistics = reserve(hidden_norm_.present(), 2 * rows);
  at.shifted = reserve(input_shift_.present(), rows * d_model_);
  at.bias = reserve(hidden_shift_ >= 0, d_ff_);
  return at;
}

int64_t FeedForward::SavedFloats(const ModelPlan& /*plan*/, const ActivationCapacity& capacity) const {
  return At(capacity.rows(stack_)).end;
}

ConstMatrix FeedForward::Inner(const float* saved, int64_t rows) const {
  const bool apart = hidden_norm_.present() || contraction_shift_.present();
  return {apart ? saved + At(rows).inner : saved, rows, d_ff_};
}

void FeedForward::Forward(const SublayerContext& context, ConstMatrix x, float* saved, Matrix y) const {
  const ParameterStore& parameters = context.parameters;
  const Offsets at = At(x.rows);
  const Matrix hidden(saved, x.rows, d_ff_);
  LinearForwardArgs expansion{.x = input_shift_.Forward(context, x, saved + at.shifted),
                              .weight = parameters.Weight(hidden_weight_),
                              .bias = parameters.WeightVector(hidden_bias_),
                              .relu = true,
                              .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation),
                              .y = hidden};
  if (hidden_shift_ >= 0) {
    const Vector bias(saved + at.bias, d_ff_);
    MakeHiddenBias(context.stream, parameters, hidden_bias_, hidden_shift_, bias);
    expansion.bias = bias;
  }
  LinearForward(context.stream, expansion);
  context.Observe({.tensor = DepthTensor::kHidden, .sublayer = sublayer_, .values = hidden});
  if (hidden_norm_.present()) {
    hidden_norm_.Forward(context, hidden, Matrix(saved + at.inner, x.rows, d_ff_), saved + at.statistics);
  }
  contraction_shift_.Forward(context, hidden, saved + at.inner);
  LinearForward(context.stream, {.x = Inner(saved, x.rows), .weight = parameters.Weight(contraction_weight_), .y = y});
}

void FeedForward::BackwardHidden(const SublayerContext& context, const float* saved, Matrix d_hidden) const {
  const ConstMatrix hidden(saved, d_hidden.rows, d_ff_);
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
  if (hidden_norm_.present()) {
    hidden_norm_.Backward(context, hidden, saved + At(d_hidden.rows).statistics, d_hidden, d_hidden);
  }
  ReluBackward(context.stream,
               {.relu_output = hidden, .mask_scale = dropout.active() ? dropout.scale() : 1.0f, .dx = d_hidden});
  if (hidden_shift_ < 0) return;
  ShiftScaleBackward(context.stream, {.dy = d_hidden,
                                      .shift = context.parameters.WeightVector(hidden_shift_),
                                      .dx = d_hidden,
                                      .d_shift = context.parameters.GradientVector(hidden_shift_),
                                      .partials = context.workspace.norm_partials()});
}

void FeedForward::BackwardInput(const SublayerContext& context, ConstMatrix d_y, const float* saved, bool accumulate,
                                Matrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const Matrix d_hidden = context.workspace.inner_gradient(d_y.rows, d_ff_);
  LinearBackwardInputArgs contraction{.dy = d_y, .weight = parameters.Weight(contraction_weight_), .dx = d_hidden};
  if (hidden_norm_.present() || hidden_shift_ >= 0) {
    contraction_shift_.BackwardInput(context, contraction);
    BackwardHidden(context, saved, d_hidden);
  } else {
    const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
    contraction.relu_output = ConstMatrix(saved, d_y.rows, d_ff_);
    contraction.mask_scale = dropout.active() ? dropout.scale() : 1.0f;
    LinearBackwardInput(context.stream, contraction);
  }
  input_shift_.BackwardInput(
      context, {.dy = d_hidden, .weight = parameters.Weight(hidden_weight_), .accumulate = accumulate, .dx = d_x});
}

void FeedForward::BackwardWeight(const SublayerContext& context, ConstMatrix x, ConstMatrix d_y,
                                 const float* saved) const {
  const ParameterStore& parameters = context.parameters;
  LinearBackwardWeight(context.stream,
                       {.dy = d_y, .x = Inner(saved, d_y.rows), .d_weight = parameters.Gradient(contraction_weight_)});
  LinearBackwardWeight(context.stream, {.dy = context.workspace.inner_gradient(d_y.rows, d_ff_),
                                        .x = input_shift_.Read(x, saved + At(d_y.rows).shifted),
                                        .d_weight = parameters.Gradient(hidden_weight_),
                                        .d_bias = parameters.GradientVector(hidden_bias_)});
}

}  // namespace hadal
