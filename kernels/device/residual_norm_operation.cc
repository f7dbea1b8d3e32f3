#include "kernels/cuda/residual_norm.h"

#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {

void operation::ResidualNormForward(const Stream& stream, const hadal::ResidualNormForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  cuda::ResidualNormForward<float, float>(device.handle(), {.rows = args.stream.rows,
                                                            .width = args.stream.columns,
                                                            .stream = ViewOf(args.stream),
                                                            .branch = ViewOf(args.branch),
                                                            .bias = args.bias.data,
                                                            .skip = ViewOf(args.skip),
                                                            .residual_gain = args.residual_gain,
                                                            .skip_gain = args.skip_gain,
                                                            .branch_gain = BranchGainOf(args, device),
                                                            .learned_residual_gain = args.learned_residual_gain.data,
                                                            .learned_branch_gain = args.learned_branch_gain.data,
                                                            .dropout = ViewOf(args.dropout, device),
                                                            .scale = args.scale.data,
                                                            .shift = args.shift.data,
                                                            .sum = ViewOf(args.sum),
                                                            .normed = ViewOf(args.normed),
                                                            .mean = args.mean.data,
                                                            .rstd = args.rstd.data});
}

void operation::ResidualNormBackward(const Stream& stream, const hadal::ResidualNormBackwardArgs& args) {
  static_assert(hadal::ResidualNormPartials(1000, 100) >= cuda::ResidualNormPartials(1000, 100));
  LaunchDevice& device = DeviceOf(stream);
  cuda::ResidualNormBackward<float, float>(device.handle(),
                                           {.rows = args.d_stream.rows,
                                            .width = args.d_stream.columns,
                                            .d_normed = ViewOf(args.d_normed),
                                            .d_sum = ViewOf(args.d_sum),
                                            .sum = ViewOf(args.sum),
                                            .mean = args.mean.data,
                                            .rstd = args.rstd.data,
                                            .scale = args.scale.data,
                                            .residual_gain = args.residual_gain,
                                            .skip_gain = args.skip_gain,
                                            .branch_gain = BranchGainOf(args, device),
                                            .learned_residual_gain = args.learned_residual_gain.data,
                                            .learned_branch_gain = args.learned_branch_gain.data,
                                            .stream = ViewOf(args.stream),
                                            .branch = ViewOf(args.branch),
                                            .bias = args.bias.data,
                                            .dropout = ViewOf(args.dropout, device),
                                            .d_stream = ViewOf(args.d_stream),
                                            .d_branch = ViewOf(args.d_branch),
                                            .d_skip = ViewOf(args.d_skip),
                                            .d_bias = args.d_bias.data,
                                            .d_scale = args.d_scale.data,
                                            .d_shift = args.d_shift.data,
                                            .d_learned_residual_gain = args.d_learned_residual_gain.data,
                                            .d_learned_branch_gain = args.d_learned_branch_gain.data,
                                            .partials = args.partials.data});
}

}  // namespace hadal::cuda
