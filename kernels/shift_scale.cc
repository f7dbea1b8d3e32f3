#include "kernels/shift_scale.h"

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

void CheckScalars(const ConstVector& shift, const ConstVector& scale) {
  HADAL_CHECK_EQ(shift.size, 1);
  if (!scale.empty()) HADAL_CHECK_EQ(scale.size, 1);
}

}  // namespace

void ShiftScaleForward(const Stream& stream, const ShiftScaleForwardArgs& args) {
  if (args.x.rows == 0) return;
  CheckShape(args.y, args.x.rows, args.x.columns);
  CheckScalars(args.shift, args.scale);
  RunKernel(stream, &DeviceKernels::shift_scale_forward, cpu::ShiftScaleForward, args);
}

void ShiftScaleBackward(const Stream& stream, const ShiftScaleBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  CheckShape(args.dx, args.dy.rows, args.dy.columns);
  CheckScalars(args.shift, args.scale);
  CheckScalars(args.d_shift, args.d_scale);
  HADAL_CHECK_EQ(args.d_scale.empty(), args.scale.empty());
  if (!args.scale.empty()) CheckShape(args.x, args.dy.rows, args.dy.columns);
  HADAL_CHECK(!args.accumulate || args.dx.data != args.dy.data);
  HADAL_CHECK_GE(args.partials.size, ShiftScalePartials(args.dy.rows));
  RunKernel(stream, &DeviceKernels::shift_scale_backward, cpu::ShiftScaleBackward, args);
}

}  // namespace hadal
