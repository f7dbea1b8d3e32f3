#include "layers/input_shift.h"

#include "kernels/shift_scale.h"

namespace hadal {

ConstMatrix InputShift::Forward(const SublayerContext& context, ConstMatrix x, float* saved) const {
  if (!present()) return x;
  const Matrix shifted(saved, x.rows, x.columns);
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

void MakeHiddenBias(const ParameterStore& parameters, int32_t bias, int32_t shift, Vector hidden_bias) {
  const ConstVector values = parameters.WeightVector(bias);
  const float shared = shift >= 0 ? parameters.WeightVector(shift)[0] : 0.0f;
  for (int64_t i = 0; i < hidden_bias.size; ++i) hidden_bias[i] = (values.empty() ? 0.0f : values[i]) - shared;
}

}  // namespace hadal
