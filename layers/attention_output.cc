#include "layers/attention_output.h"

#include "kernels/head_scale.h"
#include "kernels/linear.h"

namespace hadal {

AttentionOutput::AttentionOutput(const ModelPlan& plan, int32_t sublayer)
    : storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      weight_(plan.ParameterOf(sublayer, ParameterRole::kOutputWeight)),
      bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputBias)),
      head_scale_(plan.ParameterOf(sublayer, ParameterRole::kHeadScale)),
      inner_norm_(plan, sublayer, ParameterRole::kInnerNormScale),
      output_norm_(plan, sublayer, ParameterRole::kOutputNormScale) {
  HADAL_CHECK_GE(weight_, 0);
}

void AttentionOutput::Forward(const SublayerContext& context, ConstAnyMatrix attended, std::byte* saved,
                              AnyMatrix y) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<std::byte> s = Views(saved, attended.rows);
  if (head_scale_ >= 0) {
    HeadScaleForward(context.stream, {.x = attended, .gain = parameters.WeightVector(head_scale_), .y = s.scaled});
  }
  if (inner_norm_.present()) inner_norm_.Forward(context, s.Scaled(attended), s.normed, s.normed_statistics);
  LinearForwardArgs product{.x = s.Normed(attended), .weight = parameters.ProductWeight(weight_), .y = y};
  if (!output_norm_.present()) return LinearForward(context.stream, product);
  product.bias = parameters.ProductBias(bias_);
  product.y = s.projected;
  LinearForward(context.stream, product);
  output_norm_.Forward(context, s.projected, y, s.projected_statistics);
}

void AttentionOutput::BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, ConstAnyMatrix attended,
                                    const std::byte* saved, AnyMatrix d_attended) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const std::byte> s = Views(saved, attended.rows);
  ConstAnyMatrix d_projected = d_y;
  if (output_norm_.present()) {
    const AnyMatrix gradient = context.workspace.projected_gradient(attended.rows);
    output_norm_.Backward(context, s.projected, s.projected_statistics, d_y, gradient);
    d_projected = gradient;
  }
  LinearBackwardInput(context.stream,
                      {.dy = d_projected, .weight = parameters.ProductWeight(weight_), .dx = d_attended});
  if (inner_norm_.present()) {
    inner_norm_.Backward(context, s.Scaled(attended), s.normed_statistics, d_attended, d_attended);
  }
  if (head_scale_ < 0) return;
  HeadScaleBackward(context.stream, {.dy = d_attended,
                                     .x = attended,
                                     .gain = parameters.WeightVector(head_scale_),
                                     .dx = d_attended,
                                     .d_gain = parameters.GradientVector(head_scale_),
                                     .partials = context.workspace.norm_partials()});
}

void AttentionOutput::BackwardWeight(const SublayerContext& context, ConstAnyMatrix d_y, ConstAnyMatrix attended,
                                     const std::byte* saved) const {
  const ParameterStore& parameters = context.parameters;
  const ConstAnyMatrix read = Views(saved, attended.rows).Normed(attended);
  LinearBackwardWeightArgs args{.dy = d_y, .x = read, .d_weight = parameters.Gradient(weight_)};
  if (output_norm_.present()) {
    args.dy = context.workspace.projected_gradient(attended.rows);
    args.d_bias = parameters.GradientVector(bias_);
  }
  LinearBackwardWeight(context.stream, args);
}

}  // namespace hadal
