#include "kernels/cuda/residual_norm.h"

#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"
#include "kernels/gradient_batch.h"

namespace hadal::cuda {
namespace {

constexpr int64_t kMostColumnSums = 4;  // d_bias, d_scale, d_shift, d_ω

}  // namespace

void operation::ResidualNormForward(const Stream& stream, const hadal::ResidualNormForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const auto launch = [&]<typename Residual, typename Compute>(Residual, Compute) {
    cuda::ResidualNormForward<Residual, Compute>(device.handle(),
                                                 {.rows = args.residual.rows,
                                                  .width = args.residual.columns,
                                                  .residual = ViewOf<Residual>(args.residual),
                                                  .branch = ViewOf<Compute>(args.branch),
                                                  .bias = args.bias.data,
                                                  .skip = ViewOf<Residual>(args.skip),
                                                  .residual_gain = args.residual_gain,
                                                  .skip_gain = args.skip_gain,
                                                  .branch_gain = BranchGainOf(args, device),
                                                  .learned_residual_gain = args.learned_residual_gain.data,
                                                  .learned_branch_gain = args.learned_branch_gain.data,
                                                  .dropout = ViewOf(args.dropout, device),
                                                  .scale = args.scale.data,
                                                  .shift = args.shift.data,
                                                  .norm_gain = args.norm_gain,
                                                  .sum = ViewOf<Residual>(args.sum),
                                                  .normed = ViewOf<Compute>(args.normed),
                                                  .mean = args.mean.data,
                                                  .rstd = args.rstd.data,
                                                  .second_gain = args.second_gain,
                                                  .second = ViewOf(args.second),
                                                  .second_sum = ViewOf(args.second_sum)});
  };
  // Without branch and norm there is no tensor of the second type.
  const Storage compute = !args.branch.empty()   ? args.branch.storage
                          : !args.normed.empty() ? args.normed.storage
                                                 : args.residual.storage;
  WithElement(args.residual.storage, [&]<typename Residual>(Residual) {
    WithElement(compute, [&]<typename Compute>(Compute) { launch(Residual(), Compute()); });
  });
}

void operation::ResidualNormBackward(const Stream& stream, const hadal::ResidualNormBackwardArgs& args) {
  static_assert(hadal::ResidualNormPartials(1000, 1) >= cuda::ResidualNormPartials(1000, 1));
  static_assert(hadal::ResidualNormPartials(10000, 1) >= cuda::ResidualNormPartials(10000, 1));
  LaunchDevice& device = DeviceOf(stream);
  const int64_t rows = args.d_residual.rows, width = args.d_residual.columns;
  const bool more = !args.learned_residual_gain.empty() || !args.learned_branch_gain.empty() || !args.d_second.empty();
  float* partials = args.partials.data;
  std::vector<ColumnMerge>* later = nullptr;
  if (args.batch != nullptr) {
    partials = args.batch->Take(stream, cuda::ResidualNormPartials(rows, width, more), kMostColumnSums);
    later = &args.batch->merges();
  }
  const auto launch = [&]<typename Residual, typename Compute>(Residual, Compute) {
    cuda::ResidualNormBackward<Residual, Compute>(device.handle(),
                                                  {.rows = rows,
                                                   .width = width,
                                                   .d_normed = ViewOf<Compute>(args.d_normed),
                                                   .d_sum = ViewOf<Residual>(args.d_sum),
                                                   .sum = ViewOf<Residual>(args.sum),
                                                   .mean = args.mean.data,
                                                   .rstd = args.rstd.data,
                                                   .scale = args.scale.data,
                                                   .norm_gain = args.norm_gain,
                                                   .residual_gain = args.residual_gain,
                                                   .skip_gain = args.skip_gain,
                                                   .branch_gain = BranchGainOf(args, device),
                                                   .learned_residual_gain = args.learned_residual_gain.data,
                                                   .learned_branch_gain = args.learned_branch_gain.data,
                                                   .residual = ViewOf<Residual>(args.residual),
                                                   .branch = ViewOf<Compute>(args.branch),
                                                   .bias = args.bias.data,
                                                   .second_gain = args.second_gain,
                                                   .d_second = ViewOf(args.d_second),
                                                   .second_starts = args.second_starts,
                                                   .dropout = ViewOf(args.dropout, device),
                                                   .d_residual = ViewOf<Residual>(args.d_residual),
                                                   .d_branch = ViewOf<Compute>(args.d_branch),
                                                   .d_skip = ViewOf(args.d_skip),
                                                   .d_bias = args.d_bias.data,
                                                   .d_scale = args.d_scale.data,
                                                   .d_shift = args.d_shift.data,
                                                   .d_learned_residual_gain = args.d_learned_residual_gain.data,
                                                   .d_learned_branch_gain = args.d_learned_branch_gain.data,
                                                   .partials = partials},
                                                  later);
  };
  const Storage compute = !args.d_normed.empty() ? args.d_normed.storage : args.d_branch.storage;
  if (args.d_residual.storage == Storage::kBFloat16) return launch(BFloat16(), BFloat16());
  WithElement(compute, [&]<typename Compute>(Compute) { launch(float(), Compute()); });
}

}  // namespace hadal::cuda
