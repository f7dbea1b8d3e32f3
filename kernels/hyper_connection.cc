#include "kernels/hyper_connection.h"

#include "kernels/check_shape.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// Returns n. `one`: a tensor with the rows and the width of one stream.
int64_t CheckResiduals(const ConstMatrix& x, const ConstMatrix& one) {
  HADAL_CHECK_GE(one.columns, 1);
  const int64_t residuals = x.columns / one.columns;
  HADAL_CHECK_GE(residuals, 1);
  HADAL_CHECK_LE(residuals, kMostResiduals);
  CheckShape(x, one.rows, residuals * one.columns);
  return residuals;
}

}  // namespace

void HyperReadForward(const Stream& stream, const HyperReadForwardArgs& args) {
  const int64_t residuals = CheckResiduals(args.x, args.u), logits = HyperLogits(args.mixing, residuals);
  HADAL_CHECK_LE(residuals, MostResiduals(args.mixing));
  CheckShape(args.projected, args.u.rows, logits);
  CheckShape(args.maps, args.u.rows, HyperMaps(residuals));
  HADAL_CHECK_EQ(args.gates.size, kHyperGates);
  HADAL_CHECK_EQ(args.bias.size, logits);
  HADAL_CHECK_EQ(args.rstd.size, args.u.rows);
  RunKernel(stream, &DeviceKernels::hyper_read_forward, cpu::HyperReadForward, args);
}

void HyperWriteForward(const Stream& stream, const HyperWriteForwardArgs& args) {
  CheckShape(args.maps, args.f.rows, HyperMaps(CheckResiduals(args.x, args.f)));
  CheckShape(args.y, args.x.rows, args.x.columns);
  HADAL_CHECK(args.y.data != args.x.data);
  RunKernel(stream, &DeviceKernels::hyper_write_forward, cpu::HyperWriteForward, args);
}

void HyperWriteBackward(const Stream& stream, const HyperWriteBackwardArgs& args) {
  const int64_t maps = HyperMaps(CheckResiduals(args.x, args.f));
  CheckShape(args.maps, args.f.rows, maps);
  CheckShape(args.d_maps, args.f.rows, maps);
  CheckShape(args.dy, args.x.rows, args.x.columns);
  CheckShape(args.dx, args.x.rows, args.x.columns);
  CheckShape(args.df, args.f.rows, args.f.columns);
  RunKernel(stream, &DeviceKernels::hyper_write_backward, cpu::HyperWriteBackward, args);
}

void HyperReadBackward(const Stream& stream, const HyperReadBackwardArgs& args) {
  const int64_t residuals = CheckResiduals(args.x, args.du), logits = HyperLogits(args.mixing, residuals);
  HADAL_CHECK_LE(residuals, MostResiduals(args.mixing));
  CheckShape(args.projected, args.du.rows, logits);
  CheckShape(args.maps, args.du.rows, HyperMaps(residuals));
  CheckShape(args.d_maps, args.du.rows, HyperMaps(residuals));
  CheckShape(args.d_projected, args.du.rows, logits);
  CheckShape(args.dx, args.x.rows, args.x.columns);
  HADAL_CHECK_EQ(args.rstd.size, args.du.rows);
  HADAL_CHECK_EQ(args.d_gates.size, kHyperGates);
  HADAL_CHECK_EQ(args.d_bias.size, logits);
  HADAL_CHECK_GE(args.partials.size, HyperPartials(args.du.rows, logits));
  RunKernel(stream, &DeviceKernels::hyper_read_backward, cpu::HyperReadBackward, args);
}

void CopyToResiduals(const Stream& stream, const CopyToResidualsArgs& args) {
  CheckResiduals(args.y, args.x);
  HADAL_CHECK(args.y.data != args.x.data);
  RunKernel(stream, &DeviceKernels::copy_to_residuals, cpu::CopyToResiduals, args);
}

void SumResiduals(const Stream& stream, const SumResidualsArgs& args) {
  CheckResiduals(args.x, args.y);
  HADAL_CHECK(args.y.data != args.x.data);
  RunKernel(stream, &DeviceKernels::sum_residuals, cpu::SumResiduals, args);
}

}  // namespace hadal
