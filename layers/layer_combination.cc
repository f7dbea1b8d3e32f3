#include "layers/layer_combination.h"

#include "kernels/residual_norm.h"
#include "kernels/weighted_sum.h"
#include "layers/branch_parts.h"
#include "runtime/check.h"

namespace hadal {

LayerCombination::LayerCombination(const ModelPlan& plan, int32_t sublayer, int64_t rows)
    : weights_(plan.ParameterOf(sublayer, ParameterRole::kCombinationWeight)),
      norm_scale_(-1),
      entries_(0),
      rows_(rows),
      d_model_(plan.options.d_model),
      residual_storage_(plan.residual_storage(plan.sublayers[sublayer].stack)) {
  HADAL_CHECK_GE(weights_, 0);
  entries_ = plan.parameters[weights_].elements();
  const SublayerRecord& record = plan.sublayers[sublayer];
  if (record.norm == NormPlacement::kPost) {
    norm_scale_ = plan.ParameterOf(sublayer, ParameterRole::kCombinationNormScale);
  } else if (record.closing_norm != 0) {
    norm_scale_ = plan.ParameterOf(sublayer, ParameterRole::kClosingNormScale);
  }
}

template <typename Byte>
LayerCombination::Saved<Byte> LayerCombination::Views(Byte* saved, int64_t rows) const {
  Saved<Byte> s;
  if (norm_scale_ < 0) return s;
  SavedTensors<Byte> tensors(saved);
  s.sum = tensors.Take(residual_storage_, rows, d_model_);
  s.mean = {tensors.TakeFloats(1, rows).data, rows};
  s.rstd = {tensors.TakeFloats(1, rows).data, rows};
  s.bytes = tensors.bytes();
  return s;
}
template LayerCombination::Saved<std::byte> LayerCombination::Views(std::byte* saved, int64_t rows) const;

void LayerCombination::Combine(const Stream& stream, const ParameterStore& parameters, ConstAnyMatrix history,
                               std::byte* saved, AnyMatrix y) const {
  const Saved<std::byte> s = Views(saved, y.rows);
  const AnyMatrix sum = norm_scale_ < 0 ? y : s.sum;
  WeightedSumForward(stream, {.x = history, .weights = parameters.WeightVector(weights_), .y = sum});
  if (norm_scale_ < 0) return;
  PlainNorm(norm_scale_).Forward(stream, parameters, sum, y, s.mean, s.rstd);
}

void LayerCombination::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  const AnyMatrix d_y = tensors.d_y;
  if (norm_scale_ >= 0) {
    const Saved<const std::byte> s = Views<const std::byte>(tensors.saved, d_y.rows);
    ResidualNormBackward(context.stream,
                         {.d_normed = d_y,
                          .sum = s.sum,
                          .mean = s.mean,
                          .rstd = s.rstd,
                          .scale = context.parameters.WeightVector(norm_scale_),
                          .form = context.plan().norm_form(),
                          .d_residual = d_y,
                          .d_scale = context.parameters.GradientVector(norm_scale_),
                          .d_shift = context.parameters.GradientVector(context.plan().NormShift(norm_scale_)),
                          .partials = context.workspace.norm_partials()});
  }
  WeightedSumBackward(context.stream, {.dy = d_y,
                                       .x = tensors.x,
                                       .weights = context.parameters.WeightVector(weights_),
                                       .dx = tensors.d_x.floats(),
                                       .d_weights = context.parameters.GradientVector(weights_),
                                       .partials = context.workspace.norm_partials()});
}

}  // namespace hadal
