#include "kernels/head_norm.h"

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// `part`: the columns of a head, or the number of heads.
void CheckDivides(const ConstVector& part, int64_t columns) {
  HADAL_CHECK_GE(part.size, 1);
  HADAL_CHECK_EQ(columns % part.size, 0);
}

}  // namespace

void HeadNormForward(const Stream& stream, const HeadNormForwardArgs& args) {
  if (args.x.rows == 0) return;
  CheckShape(args.y, args.x.rows, args.x.columns);
  CheckDivides(args.scale, args.x.columns);
  if (!args.shift.empty()) HADAL_CHECK_EQ(args.shift.size, args.scale.size);
  RunKernel(stream, &DeviceKernels::head_norm_forward, cpu::HeadNormForward, args);
}

void HeadNormBackward(const Stream& stream, const HeadNormBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  CheckShape(args.x, args.dy.rows, args.dy.columns);
  CheckShape(args.dx, args.dy.rows, args.dy.columns);
  CheckDivides(args.scale, args.dy.columns);
  HADAL_CHECK_EQ(args.d_scale.size, args.scale.size);
  if (!args.d_shift.empty()) HADAL_CHECK_EQ(args.d_shift.size, args.scale.size);
  HADAL_CHECK_GE(args.partials.size, HeadNormPartials(args.dy.rows, args.scale.size));
  RunKernel(stream, &DeviceKernels::head_norm_backward, cpu::HeadNormBackward, args);
}

void HeadScaleForward(const Stream& stream, const HeadScaleForwardArgs& args) {
  if (args.x.rows == 0) return;
  CheckShape(args.y, args.x.rows, args.x.columns);
  CheckDivides(args.gain, args.x.columns);
  RunKernel(stream, &DeviceKernels::head_scale_forward, cpu::HeadScaleForward, args);
}

void HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  CheckShape(args.x, args.dy.rows, args.dy.columns);
  CheckShape(args.dx, args.dy.rows, args.dy.columns);
  CheckDivides(args.gain, args.dy.columns);
  HADAL_CHECK_EQ(args.d_gain.size, args.gain.size);
  HADAL_CHECK_GE(args.partials.size, HeadScalePartials(args.dy.rows, args.gain.size));
  RunKernel(stream, &DeviceKernels::head_scale_backward, cpu::HeadScaleBackward, args);
}

}  // namespace hadal
