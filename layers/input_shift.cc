#include "layers/input_shift.h"

#include "kernels/shift_scale.h"

namespace hadal {

ConstAnyMatrix InputShift::Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix shifted) const {
  if (!present()) return x;
  ShiftScaleForward(context.stream,
                    {.x = x.floats(), .shift = context.parameters.WeightVector(shift_), .y = shifted.floats()});
  return shifted;
}

void InputShift::BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const {
  if (!present()) return LinearBackwardInput(context.stream, product);
  LinearBackwardInputArgs alone = product;
  alone.accumulate = false;
  if (product.accumulate) alone.dx = context.workspace.branch_input_gradient(product.dx.rows);
  LinearBackwardInput(context.stream, alone);
  ShiftScaleBackward(context.stream, {.dy = alone.dx.floats(),
                                      .shift = context.parameters.WeightVector(shift_),
                                      .accumulate = product.accumulate,
                                      .dx = product.dx.floats(),
                                      .d_shift = context.parameters.GradientVector(shift_),
                                      .partials = context.workspace.norm_partials()});
}

void MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                    Vector hidden_bias) {
  const Matrix row(hidden_bias.data, 1, hidden_bias.size);
  ConstMatrix before = row;
  if (bias >= 0) {
    before = ConstMatrix(parameters.WeightVector(bias).data, 1, hidden_bias.size);
  } else {
    stream.Clear(row.data, row.columns * static_cast<int64_t>(sizeof(float)));
  }
  ShiftScaleForward(stream, {.x = before, .shift = parameters.WeightVector(shift), .y = row});
}

}  // namespace hadal
