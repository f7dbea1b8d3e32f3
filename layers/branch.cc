#include "layers/branch.h"

#include <utility>

#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "runtime/check.h"

namespace hadal {

namespace {

std::unique_ptr<Branch> MakeKind(const ModelPlan& plan, int32_t sublayer) {
  switch (plan.sublayers[sublayer].kind) {
    case SublayerKind::kSelfAttention:
      return MakeSelfAttention(plan, sublayer);
    case SublayerKind::kCrossAttention:
      return MakeCrossAttention(plan, sublayer);
    case SublayerKind::kFeedForward:
      return MakeFeedForward(plan, sublayer);
    default:
      break;
  }
  HADAL_CHECK(false && "embeddings and the head are not residual branches");
  return nullptr;
}

}  // namespace

std::unique_ptr<Branch> MakeBranch(const ModelPlan& plan, int32_t sublayer) {
  std::unique_ptr<Branch> branch = MakeKind(plan, sublayer);
  const bool normed = plan.ParameterOf(sublayer, ParameterRole::kInputNormScale) >= 0 ||
                      plan.ParameterOf(sublayer, ParameterRole::kOutputNormScale) >= 0;
  return normed ? MakeNormedBranch(plan, sublayer, std::move(branch)) : std::move(branch);
}

void InnerNorm::Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix normed, float* statistics) const {
  ResidualNormForward(context.stream, {.residual = x,
                                       .scale = context.parameters.WeightVector(scale_),
                                       .shift = context.parameters.WeightVector(scale_ + 1),
                                       .normed = normed,
                                       .mean = {statistics, x.rows},
                                       .rstd = {statistics + x.rows, x.rows}});
}

void InnerNorm::Backward(const SublayerContext& context, ConstAnyMatrix x, const float* statistics,
                         ConstAnyMatrix d_normed, AnyMatrix d_x, bool accumulate) const {
  ResidualNormBackward(context.stream, {.d_normed = d_normed,
                                        .d_sum = accumulate ? ConstAnyMatrix(d_x) : ConstAnyMatrix(),
                                        .sum = x,
                                        .mean = {statistics, x.rows},
                                        .rstd = {statistics + x.rows, x.rows},
                                        .scale = context.parameters.WeightVector(scale_),
                                        .d_residual = d_x,
                                        .d_scale = context.parameters.GradientVector(scale_),
                                        .d_shift = context.parameters.GradientVector(scale_ + 1),
                                        .partials = context.workspace.norm_partials(),
                                        .batch = context.gradients});
}

ConstAnyMatrix InputShift::Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix shifted) const {
  if (!present()) return x;
  ShiftScaleForward(context.stream, {.x = x, .shift = context.parameters.WeightVector(shift_), .y = shifted});
  return shifted;
}

void InputShift::BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const {
  if (!present()) return LinearBackwardInput(context.stream, product);
  LinearBackwardInputArgs alone = product;
  alone.accumulate = false;
  if (product.accumulate) alone.dx = context.workspace.branch_input_gradient(product.dx.rows);
  LinearBackwardInput(context.stream, alone);
  ShiftScaleBackward(context.stream, {.dy = alone.dx,
                                      .shift = context.parameters.WeightVector(shift_),
                                      .accumulate = product.accumulate,
                                      .dx = product.dx,
                                      .d_shift = context.parameters.GradientVector(shift_),
                                      .partials = context.workspace.norm_partials()});
}

ConstAnyVector MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                              AnyMatrix row) {
  ConstAnyMatrix before = row;
  if (bias >= 0) {
    before = ConstMatrix(parameters.WeightVector(bias).data, 1, row.columns);
  } else {
    stream.Clear(row.data, row.bytes());
  }
  ShiftScaleForward(stream, {.x = before, .shift = parameters.WeightVector(shift), .y = row});
  ConstAnyVector made;
  made.data = row.data;
  made.size = row.columns;
  made.storage = row.storage;
  return made;
}

}  // namespace hadal
