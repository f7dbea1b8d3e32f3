#include "kernels/cuda/residual_norm.h"

#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/operations.h"
#include "kernels/gradient_batch.h"

namespace hadal::cuda {

void operation::ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  ResidualNormForwardArgs placed = args;
  placed.dropout = OnDevice(args.dropout, device);
  cuda::ResidualNormForward(device.handle(), placed);
}

void operation::ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args) {
  constexpr int64_t kMostColumnSums = 4;  // d_bias, d_scale, d_shift, d_ω
  static_assert(hadal::ResidualNormPartials(1000, 1) >= cuda::ResidualNormPartials(1000, 1));
  static_assert(hadal::ResidualNormPartials(10000, 1) >= cuda::ResidualNormPartials(10000, 1));
  LaunchDevice& device = DeviceOf(stream);
  ResidualNormBackwardArgs placed = args;
  placed.dropout = OnDevice(args.dropout, device);
  if (args.batch == nullptr) return cuda::ResidualNormBackward(device.handle(), placed);
  const bool more = !args.learned_residual_gain.empty() || !args.learned_branch_gain.empty() || !args.d_second.empty();
  const int64_t floats = cuda::ResidualNormPartials(args.d_residual.rows, args.d_residual.columns, more);
  placed.partials = {args.batch->Take(stream, floats, kMostColumnSums), floats};
  cuda::ResidualNormBackward(device.handle(), placed, &args.batch->merges());
}

}  // namespace hadal::cuda
