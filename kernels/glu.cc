#include "kernels/glu.h"

#include <initializer_list>

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"

namespace hadal {
namespace {

void CheckShapes(const ConstAnyMatrix& value, std::initializer_list<ConstAnyMatrix> others) {
  for (const ConstAnyMatrix& other : others) CheckShape(other, value.rows, value.columns);
}

}  // namespace

void GluForward(const Stream& stream, const GluForwardArgs& args) {
  if (args.value.rows == 0) return;
  CheckShapes(args.value, {args.gate, args.y});
  if (stream.device() != nullptr) return stream.device()->kernels().glu_forward(stream, args);
  cpu::GluForward(stream, args);
}

void GluBackward(const Stream& stream, const GluBackwardArgs& args) {
  if (args.value.rows == 0) return;
  CheckShapes(args.value, {args.gate, args.dy, args.d_value, args.d_gate});
  if (stream.device() != nullptr) return stream.device()->kernels().glu_backward(stream, args);
  cpu::GluBackward(stream, args);
}

}  // namespace hadal
