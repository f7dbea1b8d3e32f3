#include "layers/attention_output.h"

#include "kernels/head_scale.h"
#include "kernels/linear.h"

namespace hadal {

AttentionOutput::AttentionOutput(const ModelPlan& plan, int32_t sublayer)
    : d_model_(plan.options.d_model),
      weight_(plan.ParameterOf(sublayer, ParameterRole::kOutputWeight)),
      bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputBias)),
      head_scale_(plan.ParameterOf(sublayer, ParameterRole::kHeadScale)),
      inner_norm_(plan, sublayer, ParameterRole::kInnerNormScale),
      output_norm_(plan, sublayer, ParameterRole::kOutputNormScale) {
  HADAL_CHECK_GE(weight_, 0);
}

AttentionOutput::Offsets AttentionOutput::At(int64_t rows) const {
  Offsets at;
  const auto reserve = [&](bool wanted, int64_t floats) {
    const int64_t offset = at.end;
    if (wanted) at.end += floats;
    return offset;
  };
  at.scaled = reserve(head_scale_ >= 0, rows * d_model_);
  at.normed = reserve(inner_norm_.present(), rows * d_model_);
  at.normed_statistics = reserve(inner_norm_.present(), 2 * rows);
  at.projected = reserve(output_norm_.present(), rows * d_model_);
  at.projected_statistics = reserve(output_norm_.present(), 2 * rows);
  return at;
}

ConstMatrix AttentionOutput::Scaled(ConstMatrix attended, const float* saved) const {
  if (head_scale_ < 0) return attended;
  return {saved + At(attended.rows).scaled, attended.rows, d_model_};
}

ConstMatrix AttentionOutput::Normed(ConstMatrix attended, const float* saved) const {
  if (!inner_norm_.present()) return Scaled(attended, saved);
  return {saved + At(attended.rows).normed, attended.rows, d_model_};
}

void AttentionOutput::Forward(const SublayerContext& context, ConstMatrix attended, float* saved, Matrix y) const {
  const int64_t rows = attended.rows;
  const ParameterStore& parameters = context.parameters;
  const Offsets at = At(rows);
  if (head_scale_ >= 0) {
    HeadScaleForward(
        context.stream,
        {.x = attended, .gain = parameters.WeightVector(head_scale_), .y = Matrix(saved + at.scaled, rows, d_model_)});
  }
  if (inner_norm_.present()) {
    inner_norm_.Forward(context, Scaled(attended, saved), Matrix(saved + at.normed, rows, d_model_),
                        saved + at.normed_statistics);
  }
  const ConstMatrix read = Normed(attended, saved);
  if (!output_norm_.present()) {
    LinearForward(context.stream, {.x = read, .weight = parameters.Weight(weight_), .y = y});
    return;
  }
  const Matrix projected(saved + at.projected, rows, d_model_);
  LinearForward(
      context.stream,
      {.x = read, .weight = parameters.Weight(weight_), .bias = parameters.WeightVector(bias_), .y = projected});
  output_norm_.Forward(context, projected, y, saved + at.projected_statistics);
}

void AttentionOutput::BackwardInput(const SublayerContext& context, ConstMatrix d_y, ConstMatrix attended,
                                    const float* saved, Matrix d_attended) const {
  const int64_t rows = attended.rows;
  const ParameterStore& parameters = context.parameters;
  const Offsets at = At(rows);
  ConstMatrix d_projected = d_y;
  if (output_norm_.present()) {
    const Matrix gradient = context.workspace.projected_gradient(rows);
    output_norm_.Backward(context, ConstMatrix(saved + at.projected, rows, d_model_), saved + at.projected_statistics,
                          d_y, gradient);
    d_projected = gradient;
  }
  LinearBackwardInput(context.stream, {.dy = d_projected, .weight = parameters.Weight(weight_), .dx = d_attended});
  if (inner_norm_.present()) {
    inner_norm_.Backward(context, Scaled(attended, saved), saved + at.normed_statistics, d_attended, d_attended);
  }
  if (head_scale_ < 0) return;
  HeadScaleBackward(context.stream, {.dy = d_attended,
                                     .x = attended,
                                     .gain = parameters.WeightVector(head_scale_),
                                     .dx = d_attended,
                                     .d_gain = parameters.GradientVector(head_scale_),
                                     .partials = context.workspace.norm_partials()});
}

void AttentionOutput::BackwardWeight(const SublayerContext& context, ConstMatrix d_y, ConstMatrix attended,
                                     const float* saved) const {
  const ParameterStore& parameters = context.parameters;
  LinearBackwardWeightArgs args{.dy = d_y, .x = Normed(attended, saved), .d_weight = parameters.Gradient(weight_)};
  if (output_norm_.present()) {
    args.dy = context.workspace.projected_gradient(attended.rows);
    args.d_bias = parameters.GradientVector(bias_);
  }
  LinearBackwardWeight(context.stream, args);
}

}  // namespace hadal
