#include "kernels/glu.h"

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

void CheckShapes(const ConstAnyMatrix& z, const ConstAnyMatrix& y) {
  HADAL_CHECK_EQ(z.columns, 2 * y.columns);
  HADAL_CHECK_EQ(z.rows, y.rows);
}

}  // namespace

void GluForward(const Stream& stream, const GluForwardArgs& args) {
  CheckShapes(args.z, args.y);
  if (stream.device() != nullptr) return stream.device()->kernels().glu_forward(stream, args);
  cpu::GluForward(stream, args);
}

void GluBackward(const Stream& stream, const GluBackwardArgs& args) {
  CheckShapes(args.z, args.dy);
  if (stream.device() != nullptr) return stream.device()->kernels().glu_backward(stream, args);
  cpu::GluBackward(stream, args);
}

}  // namespace hadal
