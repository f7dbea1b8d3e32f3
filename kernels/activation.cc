#include "kernels/activation.h"

#include <initializer_list>

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

void CheckShapes(bool gated, const ConstAnyMatrix& z, const ConstAnyMatrix& y) {
  HADAL_CHECK_EQ(z.columns, (gated ? 2 : 1) * y.columns);
  HADAL_CHECK_EQ(z.rows, y.rows);
  HADAL_CHECK(z.storage == y.storage);
}

void CheckShapes(const ConstAnyMatrix& value, std::initializer_list<ConstAnyMatrix> others) {
  for (const ConstAnyMatrix& other : others) CheckShape(other, value.rows, value.columns);
}

}  // namespace

void ActivationForward(const Stream& stream, const ActivationForwardArgs& args) {
  CheckShapes(args.gated, args.z, args.y);
  RunKernel(stream, &DeviceKernels::activation_forward, cpu::ActivationForward, args);
}

void ActivationBackward(const Stream& stream, const ActivationBackwardArgs& args) {
  CheckShapes(args.gated, args.z, args.dy);
  CheckShapes(args.gated, args.dz, args.dy);
  RunKernel(stream, &DeviceKernels::activation_backward, cpu::ActivationBackward, args);
}

void GluForward(const Stream& stream, const GluForwardArgs& args) {
  if (args.value.rows == 0) return;
  CheckShapes(args.value, {args.gate, args.y});
  RunKernel(stream, &DeviceKernels::glu_forward, cpu::GluForward, args);
}

void GluBackward(const Stream& stream, const GluBackwardArgs& args) {
  if (args.value.rows == 0) return;
  CheckShapes(args.value, {args.gate, args.dy, args.d_value, args.d_gate});
  RunKernel(stream, &DeviceKernels::glu_backward, cpu::GluBackward, args);
}

}  // namespace hadal
