#include "kernels/activation.h"

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

}  // namespace

void ActivationForward(const Stream& stream, const ActivationForwardArgs& args) {
  CheckShapes(args.gated, args.z, args.y);
  if (stream.device() != nullptr) return stream.device()->kernels().activation_forward(stream, args);
  cpu::ActivationForward(stream, args);
}

void ActivationBackward(const Stream& stream, const ActivationBackwardArgs& args) {
  CheckShapes(args.gated, args.z, args.dy);
  CheckShapes(args.gated, args.dz, args.dy);
  if (stream.device() != nullptr) return stream.device()->kernels().activation_backward(stream, args);
  cpu::ActivationBackward(stream, args);
}

}  // namespace hadal
