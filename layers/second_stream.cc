#include "layers/second_stream.h"

#include "kernels/residual_norm.h"
#include "runtime/check.h"

namespace hadal {

SecondStreamEnd::SecondStreamEnd(const ModelPlan& plan, int32_t last, int64_t rows)
    : norm_scale_(plan.ParameterOf(last, ParameterRole::kClosingNormScale)), rows_(rows) {
  HADAL_CHECK(plan.HasSecondStream(plan.sublayers[last].stack));
  HADAL_CHECK_GE(norm_scale_, 0);
}

void SecondStreamEnd::Close(const Stream& stream, const ParameterStore& parameters, const CloseArgs& args) const {
  ResidualNormForward(stream, {.residual = args.second,
                               .scale = parameters.WeightVector(norm_scale_),
                               .shift = parameters.WeightVector(parameters.plan().NormShift(norm_scale_)),
                               .form = parameters.plan().norm_form(),
                               .normed = args.normed,
                               .mean = args.mean,
                               .rstd = args.rstd});
  ResidualNormForward(stream, {.residual = args.x, .branch = args.normed, .sum = args.y});
}

void SecondStreamEnd::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const int64_t rows = tensors.y.rows;
  Close(context.stream, context.parameters,
        {.x = tensors.x,
         .second = tensors.second,
         .normed = context.workspace.branch(rows),
         .mean = Mean(tensors.saved, rows),
         .rstd = Rstd(tensors.saved, rows),
         .y = tensors.y});
}

void SecondStreamEnd::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  const int64_t rows = tensors.d_y.rows;
  ResidualNormBackward(context.stream,
                       {.d_normed = tensors.d_y,
                        .sum = tensors.second,
                        .mean = Mean(tensors.saved, rows),
                        .rstd = Rstd(tensors.saved, rows),
                        .scale = context.parameters.WeightVector(norm_scale_),
                        .form = context.plan().norm_form(),
                        .d_residual = tensors.d_second,
                        .d_scale = context.parameters.GradientVector(norm_scale_),
                        .d_shift = context.parameters.GradientVector(context.plan().NormShift(norm_scale_)),
                        .partials = context.workspace.norm_partials(),
                        .batch = context.gradients});
}

}  // namespace hadal
