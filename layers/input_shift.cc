#include "layers/input_shift.h"

#include "kernels/shift_scale.h"

namespace hadal {

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
