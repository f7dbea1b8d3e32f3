#include "kernels/cuda_host/operations.h"

#include "kernels/cuda/activation.h"
#include "kernels/cuda/adam.h"
#include "kernels/cuda/add.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_residual.h"
#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/glu.h"
#include "kernels/cuda/head_norm.h"
#include "kernels/cuda/head_scale.h"
#include "kernels/cuda/hyper_connection.h"
#include "kernels/cuda/muon.h"
#include "kernels/cuda/residual_norm.h"
#include "kernels/cuda/scatter_rows.h"
#include "kernels/cuda/shift_scale.h"
#include "kernels/cuda/top_candidates.h"
#include "kernels/cuda/weighted_sum.h"
#include "kernels/cuda_host/batch_block.h"
#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/launch_device.h"

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
      .fold = operation::Fold,
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
      .residual_norm_forward = operation::ResidualNormForward,
      .residual_norm_backward = operation::ResidualNormBackward,
      .scaled = Launched<ScaledArgs, cuda::Scaled>,
      .scatter_rows = ScatterRowsOperation,
      .shift_scale_forward = Launched<ShiftScaleForwardArgs, cuda::ShiftScaleForward>,
      .shift_scale_backward = Launched<ShiftScaleBackwardArgs, cuda::ShiftScaleBackward>,
      .sum_residuals = Launched<SumResidualsArgs, cuda::SumResiduals>,
      .sums_of_squares = operation::SumsOfSquares,
      .top_candidates = Launched<TopCandidatesArgs, cuda::TopCandidates>,
      .unfold = operation::Unfold,
      .weighted_sum_forward = Launched<WeightedSumForwardArgs, cuda::WeightedSumForward>,
      .weighted_sum_backward = Launched<WeightedSumBackwardArgs, cuda::WeightedSumBackward>,
      .write_batch = WriteBatch,
      .learned_gains = true,
      .widest_row = kWidestRow,
      .widest_head = kWidestHead};
  return kOperations;
}

}  // namespace hadal::cuda
