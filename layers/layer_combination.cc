#include "layers/layer_combination.h"

#include "kernels/residual_norm.h"
#include "kernels/weighted_sum.h"
#include "runtime/check.h"

namespace hadal {

LayerCombination::LayerCombination(const ModelPlan& plan, int32_t sublayer, int64_t rows)
    : weights_(plan.ParameterOf(sublayer, ParameterRole::kCombinationWeight)),
      norm_scale_(-1),
      entries_(0),
      rows_(rows),
      d_model_(plan.options.d_model) {
  HADAL_CHECK_GE(weights_, 0);
  entries_ = plan.parameters[weights_].elements();
  const SublayerRecord& record = plan.sublayers[sublayer];
  if (record.norm == NormPlacement::kPost) {
    norm_scale_ = plan.ParameterOf(sublayer, ParameterRole::kCombinationNormScale);
  } else if (record.closing_norm != 0) {
    norm_scale_ = plan.ParameterOf(sublayer, ParameterRole::kClosingNormScale);
  }
}

void LayerCombination::Forward(const Stream& stream, const ParameterStore& parameters, ConstMatrix history,
                               float* saved, Matrix out) const {
  const int64_t rows = out.rows;
  const Matrix sum = norm_scale_ < 0 ? out : Matrix(saved, rows, d_model_);
  WeightedSumForward(stream, {.x = history, .weights = parameters.WeightVector(weights_), .y = sum});
  if (norm_scale_ < 0) return;
  float* const statistics = saved + rows_ * d_model_;
  ResidualNormForward(stream, {.stream = sum,
                               .scale = parameters.WeightVector(norm_scale_),
                               .shift = parameters.WeightVector(norm_scale_ + 1),
                               .normed = out,
                               .mean = {statistics, rows},
                               .rstd = {statistics + rows_, rows}});
}

void LayerCombination::Backward(const SublayerContext& context, ConstMatrix history, const float* saved, Matrix d_out,
                                Matrix d_history) const {
  const int64_t rows = d_out.rows;
  if (norm_scale_ >= 0) {
    const float* const statistics = saved + rows_ * d_model_;
    ResidualNormBackward(context.stream, {.d_normed = d_out,
                                          .sum = ConstMatrix(saved, rows, d_model_),
                                          .mean = {statistics, rows},
                                          .rstd = {statistics + rows_, rows},
                                          .scale = context.parameters.WeightVector(norm_scale_),
                                          .d_stream = d_out,
                                          .d_scale = context.parameters.GradientVector(norm_scale_),
                                          .d_shift = context.parameters.GradientVector(norm_scale_ + 1),
                                          .partials = context.workspace.norm_partials()});
  }
  WeightedSumBackward(context.stream, {.dy = d_out,
                                       .x = history,
                                       .weights = context.parameters.WeightVector(weights_),
                                       .dx = d_history,
                                       .d_weights = context.parameters.GradientVector(weights_),
                                       .partials = context.workspace.norm_partials()});
}

}  // namespace hadal
