#include "layers/layer_combination.h"

#include "kernels/weighted_sum.h"
#include "runtime/check.h"

namespace hadal {

LayerCombination::LayerCombination(const ModelPlan& plan, int32_t sublayer, int64_t rows)
    : weights_(plan.ParameterOf(sublayer, ParameterRole::kCombinationWeight)),
      entries_(0),
      rows_(rows),
      d_model_(plan.options.d_model),
      residual_storage_(plan.residual_storage(plan.sublayers[sublayer].stack)) {
  HADAL_CHECK_GE(weights_, 0);
  entries_ = plan.parameters[weights_].elements();
  const SublayerRecord& record = plan.sublayers[sublayer];
  if (record.norm == NormPlacement::kPost) {
    norm_ = PlainNorm(plan, sublayer, ParameterRole::kCombinationNormScale);
  } else if (record.closing_norm != 0) {
    norm_ = PlainNorm(plan, sublayer, ParameterRole::kClosingNormScale);
  }
}

LayerCombination::Saved LayerCombination::Views(std::byte* saved, int64_t rows) const {
  if (!norm_.present()) return {};
  SavedTensors tensors(saved);
  Saved s{.sum = tensors.Take(residual_storage_, rows, d_model_)};
  s.statistics = tensors.TakeFloats(rows, 2).data;
  s.bytes = tensors.bytes();
  return s;
}

void LayerCombination::Combine(const Stream& stream, const ParameterStore& parameters, ConstAnyMatrix history,
                               std::byte* saved, AnyMatrix y) const {
  const Saved s = Views(saved, y.rows);
  const AnyMatrix sum = norm_.present() ? s.sum : y;
  WeightedSumForward(stream, {.x = history, .weights = parameters.WeightVector(weights_), .y = sum});
  if (norm_.present()) norm_.Forward(stream, parameters, sum, y, s.statistics);
}

void LayerCombination::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  const AnyMatrix d_y = tensors.d_y;
  if (norm_.present()) {
    const Saved s = Views(tensors.saved, d_y.rows);
    norm_.Backward(context, s.sum, s.statistics, d_y, d_y);
  }
  WeightedSumBackward(context.stream, {.dy = d_y,
                                       .x = tensors.x,
                                       .weights = context.parameters.WeightVector(weights_),
                                       .dx = tensors.d_x.floats(),
                                       .d_weights = context.parameters.GradientVector(weights_),
                                       .partials = context.workspace.norm_partials()});
}

}  // namespace hadal
