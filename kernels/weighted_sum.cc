#include "kernels/weighted_sum.h"

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
void WeightedSumForward(const Stream& stream, const WeightedSumForwardArgs& args) {
  if (args.y.rows == 0) return;
  HADAL_CHECK_GE(args.weights.size, 1);
  CheckShape(args.x, args.weights.size * args.y.rows, args.y.columns);
  RunKernel(stream, &DeviceKernels::weighted_sum_forward, cpu::WeightedSumForward, args);
}

void WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  HADAL_CHECK_GE(args.weights.size, 1);
  CheckShape(args.x, args.weights.size * args.dy.rows, args.dy.columns);
  CheckShape(args.dx, args.x.rows, args.x.columns);
  HADAL_CHECK_EQ(args.d_weights.size, args.weights.size);
  HADAL_CHECK_GE(args.partials.size, WeightedSumPartials(args.dy.rows, args.weights.size));
  RunKernel(stream, &DeviceKernels::weighted_sum_backward, cpu::WeightedSumBackward, args);
}

}  // namespace hadal
