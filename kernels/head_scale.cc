#include "kernels/head_scale.h"

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

void CheckHeads(const ConstVector& gain, int64_t columns) {
  HADAL_CHECK_GE(gain.size, 1);
  HADAL_CHECK_EQ(columns % gain.size, 0);
}

}  // namespace

void HeadScaleForward(const Stream& stream, const HeadScaleForwardArgs& args) {
  if (args.x.rows == 0) return;
  CheckShape(args.y, args.x.rows, args.x.columns);
  CheckHeads(args.gain, args.x.columns);
  if (stream.device() != nullptr) return stream.device()->kernels().head_scale_forward(stream, args);
  cpu::HeadScaleForward(stream, args);
}

void HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  CheckShape(args.x, args.dy.rows, args.dy.columns);
  CheckShape(args.dx, args.dy.rows, args.dy.columns);
  CheckHeads(args.gain, args.dy.columns);
  HADAL_CHECK_EQ(args.d_gain.size, args.gain.size);
  HADAL_CHECK_GE(args.partials.size, HeadScalePartials(args.dy.rows, args.gain.size));
  if (stream.device() != nullptr) return stream.device()->kernels().head_scale_backward(stream, args);
  cpu::HeadScaleBackward(stream, args);
}

}  // namespace hadal
