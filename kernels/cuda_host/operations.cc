#include "kernels/cuda_host/operations.h"

#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/residual_norm.h"
#include "kernels/cuda/unfold.h"
#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/launch_device.h"
#include "kernels/gradient_batch.h"

namespace hadal::cuda {
namespace {

// An operation that is the launch of a kernel.
template <typename Args, void (*kKernel)(StreamHandle stream, const Args& args)>
void Launched(const Stream& stream, const Args& args) {
  kKernel(DeviceOf(stream).handle(), args);
}

// The same with dropout.
template <typename Args, void (*kKernel)(StreamHandle stream, const Args& args)>
void LaunchedWithDropout(const Stream& stream, const Args& args) {
  LaunchDevice& device = DeviceOf(stream);
  Args placed = args;
  placed.dropout = OnDevice(args.dropout, device);
  kKernel(device.handle(), placed);
}

// It may be launched on another queue than the main one.
void AddOnItsQueue(const Stream& stream, const AddArgs& args) { Add(HandleOf(stream), args); }

void AdamStepOperation(const Stream& stream, const AdamArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  cuda::AdamStep(device.handle(), args, device.launch_memory().Put(AdamScalarsOf(args)));
}

void MergeColumnsOperation(const Stream& stream, std::span<const ColumnMerge> merges) {
  cuda::MergeColumns(DeviceOf(stream).handle(), merges);
}

void CrossEntropyOperation(const Stream& stream, const CrossEntropyArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  CrossEntropyArgs placed = args;
  if (args.device_targets == nullptr) {
    placed.device_targets = device.launch_memory().Put(args.targets.data, args.targets.size).address;
  }
  if (args.gradient_scale == 0.0f) {
    placed.device_gradient_scale = nullptr;
  } else if (args.device_gradient_scale == nullptr) {
    placed.device_gradient_scale = device.launch_memory().Put(args.gradient_scale).address;
  }
  cuda::CrossEntropy(device.handle(), placed);
}

void ScatterRowsOperation(const Stream& stream, const ScatterRowsArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  ScatterRowsArgs placed = args;
  if (args.device_index == nullptr) {
    placed.device_index = device.launch_memory().Put(args.index.data, args.index.size).address;
  }
  if (args.rotary.active() && args.device_positions == nullptr) {
    placed.device_positions = device.launch_memory().Put(args.positions.data, args.positions.size).address;
  }
  cuda::ScatterRows(device.handle(), placed);
}

void ResidualNormBackwardOperation(const Stream& stream, const ResidualNormBackwardArgs& args) {
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

// Calls kernel(handle, args) with the rows' taps in device memory.
template <typename Args>
void WithTaps(const Stream& stream, Args args, void (*kernel)(StreamHandle, const Args&)) {
  LaunchDevice& device = DeviceOf(stream);
  if (args.device_taps.taps == nullptr) {
    const ConstTokens &x = args.x_offsets, &u = args.u_offsets;
    const std::vector<RowTaps> taps = TapsOfRows({x.data, x.data + x.size}, {u.data, u.data + u.size});
    const auto rows = static_cast<int64_t>(taps.size());
    args.device_taps = {device.launch_memory().Put(taps.data(), rows).address, rows};
  }
  kernel(device.handle(), args);
}

void UnfoldOperation(const Stream& stream, const UnfoldArgs& args) { WithTaps(stream, args, cuda::Unfold); }
void FoldOperation(const Stream& stream, const FoldArgs& args) { WithTaps(stream, args, cuda::Fold); }

}  // namespace

const DeviceKernels& Operations() {
  static constexpr DeviceKernels kOperations = {
      .activation_forward = LaunchedWithDropout<ActivationForwardArgs, cuda::ActivationForward>,
      .activation_backward = LaunchedWithDropout<ActivationBackwardArgs, cuda::ActivationBackward>,
      .adam_step = AdamStepOperation,
      .add = AddOnItsQueue,
      .attention_forward = operation::AttentionForward,
      .attention_backward = operation::AttentionBackward,
      .cached_attention = operation::CachedAttention,
      .convert = Launched<ConvertArgs, cuda::Convert>,
      .copy_to_residuals = Launched<CopyToResidualsArgs, cuda::CopyToResiduals>,
      .cross_entropy = CrossEntropyOperation,
      .embedding_forward = operation::EmbeddingForward,
      .embedding_backward = operation::EmbeddingBackward,
      .fold = FoldOperation,
      .glu_forward = Launched<GluForwardArgs, cuda::GluForward>,
      .glu_backward = Launched<GluBackwardArgs, cuda::GluBackward>,
      .head_norm_forward = Launched<HeadNormForwardArgs, cuda::HeadNormForward>,
      .head_norm_backward = Launched<HeadNormBackwardArgs, cuda::HeadNormBackward>,
      .head_scale_forward = Launched<HeadScaleForwardArgs, cuda::HeadScaleForward>,
      .head_scale_backward = Launched<HeadScaleBackwardArgs, cuda::HeadScaleBackward>,
      .has_relu_mask = operation::HasReluMask,
      .hyper_read_forward = Launched<HyperReadForwardArgs, cuda::HyperReadForward>,
      .hyper_read_backward = Launched<HyperReadBackwardArgs, cuda::HyperReadBackward>,
      .hyper_write_forward = Launched<HyperWriteForwardArgs, cuda::HyperWriteForward>,
      .hyper_write_backward = Launched<HyperWriteBackwardArgs, cuda::HyperWriteBackward>,
      .linear_forward = operation::LinearForward,
      .linear_backward_input = operation::LinearBackwardInput,
      .linear_backward_weights = operation::LinearBackwardWeights,
      .merge_columns = MergeColumnsOperation,
      .muon_momentum = Launched<MuonMomentumArgs, cuda::MuonMomentum>,
      .muon_step = Launched<MuonStepArgs, cuda::MuonStep>,
      .polynomial = Launched<PolynomialArgs, cuda::Polynomial>,
      .read_open_forward = Launched<ReadOpenForwardArgs, cuda::ReadOpenForward>,
      .read_open_backward = Launched<ReadOpenBackwardArgs, cuda::ReadOpenBackward>,
      .read_sources_forward = Launched<ReadSourcesForwardArgs, cuda::ReadSourcesForward>,
      .read_sources_backward = Launched<ReadSourcesBackwardArgs, cuda::ReadSourcesBackward>,
      .relu_backward = operation::ReluBackward,
      .residual_norm_forward = LaunchedWithDropout<ResidualNormForwardArgs, cuda::ResidualNormForward>,
      .residual_norm_backward = ResidualNormBackwardOperation,
      .scaled = Launched<ScaledArgs, cuda::Scaled>,
      .scatter_rows = ScatterRowsOperation,
      .shift_scale_forward = Launched<ShiftScaleForwardArgs, cuda::ShiftScaleForward>,
      .shift_scale_backward = Launched<ShiftScaleBackwardArgs, cuda::ShiftScaleBackward>,
      .sum_residuals = Launched<SumResidualsArgs, cuda::SumResiduals>,
      .sums_of_squares = operation::SumsOfSquares,
      .top_candidates = Launched<TopCandidatesArgs, cuda::TopCandidates>,
      .unfold = UnfoldOperation,
      .weighted_sum_forward = Launched<WeightedSumForwardArgs, cuda::WeightedSumForward>,
      .weighted_sum_backward = Launched<WeightedSumBackwardArgs, cuda::WeightedSumBackward>,
      .write_batch = WriteBatch,
      .learned_gains = true,
      .widest_row = kWidestRow,
      .widest_head = kWidestHead};
  return kOperations;
}

}  // namespace hadal::cuda
