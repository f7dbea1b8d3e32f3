#include "kernels/head_norm.h"

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

void CheckHeadWidth(const ConstVector& scale, int64_t columns) {
  HADAL_CHECK_GE(scale.size, 1);
  HADAL_CHECK_EQ(columns % scale.size, 0);
}

}  // namespace

void HeadNormForward(const Stream& stream, const HeadNormForwardArgs& args) {
  if (args.x.rows == 0) return;
  CheckShape(args.y, args.x.rows, args.x.columns);
  CheckHeadWidth(args.scale, args.x.columns);
  if (!args.shift.empty()) HADAL_CHECK_EQ(args.shift.size, args.scale.size);
  if (stream.device() != nullptr) return stream.device()->kernels().head_norm_forward(stream, args);
  cpu::HeadNormForward(stream, args);
}

void HeadNormBackward(const Stream& stream, const HeadNormBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  CheckShape(args.x, args.dy.rows, args.dy.columns);
  CheckShape(args.dx, args.dy.rows, args.dy.columns);
  CheckHeadWidth(args.scale, args.dy.columns);
  HADAL_CHECK_EQ(args.d_scale.size, args.scale.size);
  if (!args.d_shift.empty()) HADAL_CHECK_EQ(args.d_shift.size, args.scale.size);
  HADAL_CHECK_GE(args.partials.size, HeadNormPartials(args.dy.rows, args.scale.size));
  if (stream.device() != nullptr) return stream.device()->kernels().head_norm_backward(stream, args);
  cpu::HeadNormBackward(stream, args);
}

}  // namespace hadal
