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
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      d_ff_(plan.options.d_ff),
      dropout_(plan.options.activation_dropout),
      keeps_mask_(plan.relu_masks && storage_ == Storage::kBFloat16 && dropout_ == 0 && !hidden_norm_.present() &&
                  hidden_shift_ < 0 && !contraction_shift_.present()) {
  HADAL_CHECK(!hidden_norm_.present() || !contraction_shift_.present());
}

template <typename Byte>
FeedForward::Saved<Byte> FeedForward::Views(Byte* saved, int64_t rows) const {
  SavedTensors tensors(saved);
  Saved<Byte> s;
  s.hidden = tensors.Take(storage_, rows, d_ff_);
  if (hidden_norm_.present() || contraction_shift_.present()) s.inner = tensors.Take(storage_, rows, d_ff_);
  if (hidden_norm_.present()) s.statistics = tensors.TakeFloats(rows, 2).data;
  if (input_shift_.present()) s.shifted = tensors.Take(storage_, rows, d_model_);
  if (hidden_shift_ >= 0) s.bias = tensors.Take(storage_, 1, d_ff_);
  if (keeps_mask_) s.mask = tensors.TakeBytes(ReluMaskBytes(rows, d_ff_));
  s.bytes = tensors.bytes();
  return s;
}

int64_t FeedForward::SavedBytes(const ActivationCapacity& capacity) const {
  return Views<std::byte>(nullptr, capacity.rows(stack_)).bytes;
}

bool FeedForward::UsesMask(const SublayerContext& context, int64_t rows) const {
  if (!keeps_mask_ || !context.scalars.training) return false;
  const ParameterStore& parameters = context.parameters;
  return HasReluMask(context.stream, {.rows = rows,
                                      .hidden_weight = parameters.ProductWeight(hidden_weight_),
                                      .hidden_bias = hidden_bias_ >= 0,
                                      .contraction_weight = parameters.ProductWeight(contraction_weight_)});
}

bool FeedForward::AddsBiasWithRelu(const SublayerContext& context, int64_t rows) const {
  return context.stream.device() != nullptr && hidden_bias_ >= 0 && !hidden_norm_.present() && hidden_shift_ < 0 &&
         !UsesMask(context, rows);
}

void FeedForward::Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix y) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<std::byte> s = Views(saved, x.rows);
  LinearForwardArgs expansion{.x = input_shift_.Forward(context, x, s.shifted),
                              .weight = parameters.ProductWeight(hidden_weight_),
                              .bias = parameters.ProductBias(hidden_bias_),
                              .relu = true,
                              .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation),
                              .relu_mask = UsesMask(context, x.rows) ? s.mask : nullptr,
                              .y = s.hidden};
  if (hidden_shift_ >= 0) {
    expansion.bias = MakeHiddenBias(context.stream, parameters, hidden_bias_, hidden_shift_, s.bias);
  }
  LinearForward(context.stream, expansion);
  context.Observe({.tensor = DepthTensor::kHidden, .sublayer = sublayer_, .values = s.hidden});
  if (hidden_norm_.present()) hidden_norm_.Forward(context, s.hidden, s.inner, s.statistics);
  contraction_shift_.Forward(context, s.hidden, s.inner);
  LinearForward(context.stream, {.x = s.Inner(), .weight = parameters.ProductWeight(contraction_weight_), .y = y});
}

void FeedForward::BackwardHidden(const SublayerContext& context, const Saved<const std::byte>& s,
                                 AnyMatrix d_hidden) const {
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
  if (hidden_norm_.present()) hidden_norm_.Backward(context, s.hidden, s.statistics, d_hidden, d_hidden);
  ReluBackward(context.stream,
               {.relu_output = s.hidden, .mask_scale = dropout.active() ? dropout.scale() : 1.0f, .dx = d_hidden});
  if (hidden_shift_ < 0) return;
  ShiftScaleBackward(context.stream, {.dy = d_hidden,
                                      .shift = context.parameters.WeightVector(hidden_shift_),
                                      .dx = d_hidden,
                                      .d_shift = context.parameters.GradientVector(hidden_shift_),
                                      .partials = context.workspace.norm_partials()});
}

void FeedForward::BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, const std::byte* saved,
                                bool accumulate, AnyMatrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const std::byte> s = Views(saved, d_y.rows);
  const AnyMatrix d_hidden = context.workspace.inner_gradient(d_y.rows, d_ff_);
  LinearBackwardInputArgs contraction{
      .dy = d_y, .weight = parameters.ProductWeight(contraction_weight_), .dx = d_hidden};
  if (hidden_norm_.present() || hidden_shift_ >= 0) {
    contraction_shift_.BackwardInput(context, contraction);
    BackwardHidden(context, s, d_hidden);
  } else {
    const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
    if (UsesMask(context, d_y.rows)) {
      contraction.relu_mask = s.mask;
    } else {
      contraction.relu_output = s.hidden;
      contraction.mask_scale = dropout.active() ? dropout.scale() : 1.0f;
    }
    if (AddsBiasWithRelu(context, d_y.rows)) contraction.relu_bias_gradient = parameters.GradientVector(hidden_bias_);
    LinearBackwardInput(context.stream, contraction);
  }
  input_shift_.BackwardInput(
      context,
      {.dy = d_hidden, .weight = parameters.ProductWeight(hidden_weight_), .accumulate = accumulate, .dx = d_x});
}

void FeedForward::BackwardWeight(const SublayerContext& context, ConstAnyMatrix x, ConstAnyMatrix d_y,
                                 const std::byte* saved) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const std::byte> s = Views(saved, d_y.rows);
  LinearBackwardWeight(context.stream,
                       {.dy = d_y, .x = s.Inner(), .d_weight = parameters.Gradient(contraction_weight_)});
  LinearBackwardWeightArgs expansion{.dy = context.workspace.inner_gradient(d_y.rows, d_ff_),
                                     .x = input_shift_.Read(x, s.shifted),
                                     .d_weight = parameters.Gradient(hidden_weight_)};
  if (!AddsBiasWithRelu(context, d_y.rows)) expansion.d_bias = parameters.GradientVector(hidden_bias_);
  LinearBackwardWeight(context.stream, expansion);
}

}  // namespace hadal
