#include "layers/inner_norm.h"

#include "kernels/residual_norm.h"

namespace hadal {

void InnerNorm::Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix normed, float* statistics) const {
  ResidualNormForward(context.stream, {.residual = x,
                                       .scale = context.parameters.WeightVector(scale_),
                                       .shift = context.parameters.WeightVector(scale_ + 1),
                                       .normed = normed,
                                       .mean = {statistics, x.rows},
                                       .rstd = {statistics + x.rows, x.rows}});
}

void InnerNorm::Backward(const SublayerContext& context, ConstAnyMatrix x, const float* statistics,
                         ConstAnyMatrix d_normed, AnyMatrix d_x) const {
  ResidualNormBackward(context.stream, {.d_normed = d_normed,
                                        .sum = x,
                                        .mean = {statistics, x.rows},
                                        .rstd = {statistics + x.rows, x.rows},
                                        .scale = context.parameters.WeightVector(scale_),
                                        .d_residual = d_x,
                                        .d_scale = context.parameters.GradientVector(scale_),
                                        .d_shift = context.parameters.GradientVector(scale_ + 1),
                                        .partials = context.workspace.norm_partials()});
}

}  // namespace hadal
