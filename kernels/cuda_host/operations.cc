#include "kernels/cuda_host/operations.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cached_attention.h"
#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/residual_norm.h"
#include "kernels/cuda/sum_of_squares.h"
#include "kernels/cuda/unfold.h"
#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/launch_device.h"
#include "kernels/gradient_batch.h"
#include "runtime/check.h"

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
  cuda::MergeColumns(HandleOf(stream), merges);
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

// Device addresses of the index and lengths of rows [first, first + count).
struct DeviceIndices {
  DevicePointer<const int32_t> index, lengths;
  int64_t stride = 0;
};

void Attend(LaunchDevice& device, const hadal::CachedAttentionArgs& args, int64_t first, int64_t count,
            const DeviceIndices& indices) {
  WithElement(args.q.storage, [&]<typename T>(T) {
    cuda::CachedAttention<T>(device.handle(), {.rows = count,
                                               .heads = args.heads,
                                               .head_width = args.q.columns / args.heads,
                                               .q = ViewOf<T>(args.q.Rows(first, count)),
                                               .cache = ViewOf<T>(args.cache),
                                               .index = indices.index,
                                               .index_stride = indices.stride,
                                               .lengths = indices.lengths,
                                               .output = ViewOf<T>(args.output.Rows(first, count)),
                                               .group = args.group,
                                               .rotary = DeviceRotaryOf(args.rotary),
                                               .reach = args.reach});
  });
}

// Without device addresses, copies only the part of the index that is read, for as many rows at a time as fit into
// launch memory.
void CachedAttentionOperation(const Stream& stream, const hadal::CachedAttentionArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const int64_t rows = args.q.rows;
  if (args.device_index != nullptr) {
    HADAL_CHECK(args.device_lengths != nullptr);
    return Attend(device, args, 0, rows, {args.device_index, args.device_lengths, args.index_stride});
  }
  LaunchMemory& memory = device.launch_memory();
  const int64_t longest = *std::max_element(args.lengths.data, args.lengths.data + rows);
  const int64_t most = std::max<int64_t>(LaunchMemory::kHalfBytes / static_cast<int64_t>(sizeof(int32_t)) / longest, 1);
  std::vector<int32_t> index;
  for (int64_t first = 0, count = 0; first < rows; first += count) {
    count = std::min(most, rows - first);
    index.assign(count * longest, 0);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(args.index.data + (first + i) * args.index_stride, args.lengths[first + i], &index[i * longest]);
    }
    const DevicePointer<const int32_t> device_index = memory.Put(index.data(), std::ssize(index));
    Attend(device, args, first, count, {device_index, memory.Put(args.lengths.data + first, count), longest});
  }
}

// Returns the position of each row in its sentence.
std::vector<int32_t> RowPositions(const ConstTokens& offsets) {
  std::vector<int32_t> positions;
  for (int64_t n = 0; n + 1 < offsets.size; ++n) {
    for (int32_t row = offsets[n]; row < offsets[n + 1]; ++row) positions.push_back(row - offsets[n]);
  }
  return positions;
}

void EmbeddingForwardOperation(const Stream& stream, const EmbeddingForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  EmbeddingForwardArgs placed = args;
  if (args.device_tokens.tokens == nullptr) {
    LaunchMemory& memory = device.launch_memory();
    std::vector<int32_t> counted;
    ConstTokens positions = args.row_positions;
    if (positions.empty()) {
      counted = RowPositions(args.offsets);
      positions = {counted.data(), static_cast<int64_t>(counted.size())};
    }
    placed.device_tokens.tokens = memory.Put(args.tokens.data, args.tokens.size).address;
    placed.device_tokens.positions = memory.Put(positions.data, positions.size).address;
  }
  placed.dropout = OnDevice(args.dropout, device);
  cuda::EmbeddingForward(device.handle(), placed);
}

void EmbeddingBackwardOperation(const Stream& stream, const EmbeddingBackwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  EmbeddingBackwardArgs placed = args;
  if (args.device_tokens.tokens == nullptr) {
    LaunchMemory& memory = device.launch_memory();
    const TokenGroups groups = GroupRowsByToken({args.tokens.data, args.tokens.data + args.tokens.size});
    const int32_t count = static_cast<int32_t>(groups.tokens.size());
    placed.device_tokens.group_count = memory.Put(count).address;
    placed.device_tokens.group_starts = memory.Put(groups.starts.data(), count + 1).address;
    placed.device_tokens.group_tokens = memory.Put(groups.tokens.data(), count).address;
    placed.device_tokens.sorted_rows = memory.Put(groups.sorted_rows.data(), groups.sorted_rows.size()).address;
    if (!args.d_positions.empty()) {
      const std::vector<int32_t> positions = RowPositions(args.offsets);
      placed.device_tokens.positions = memory.Put(positions.data(), std::ssize(positions)).address;
    }
  }
  placed.dropout = OnDevice(args.dropout, device);
  cuda::EmbeddingBackward(device.handle(), placed);
}

constexpr size_t kSlicesAtATime = 1024;

// The slices of one launch: as many as kSlicesAtATime and the size of scratch allow.
struct Run {
  std::array<SquaresRange, kSlicesAtATime> ranges;
  const float* x = nullptr;  // the lowest address of the ranges
  int64_t slices = 0, longest = 0;

  int64_t ScratchBytes() const {
    return (SumOfSquaresPartials(slices, longest) + slices) * static_cast<int64_t>(sizeof(double));
  }
};

Run FirstRun(std::span<const SquaresSlice> slices) {
  Run run;
  for (const SquaresSlice& slice : slices.first(std::min(slices.size(), kSlicesAtATime))) {
    Run longer;
    longer.slices = run.slices + 1, longer.longest = std::max(run.longest, slice.x.size);
    if (run.slices > 0 && longer.ScratchBytes() > LaunchMemory::kScratchBytes) break;
    run.slices = longer.slices, run.longest = longer.longest;
    run.x = run.x == nullptr ? slice.x.data : std::min(run.x, slice.x.data);
  }
  HADAL_CHECK_LE(run.ScratchBytes(), LaunchMemory::kScratchBytes);
  for (int64_t i = 0; i < run.slices; ++i) {
    const int64_t begin = slices[i].x.data - run.x;
    run.ranges[i] = {begin, begin + slices[i].x.size};
  }
  return run;
}

void SumsOfSquaresOperation(const Stream& stream, const hadal::SumsOfSquaresArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  double* const sums = reinterpret_cast<double*>(device.launch_memory().scratch());
  for (size_t first = 0; first < args.slices.size();) {
    const Run run = FirstRun(args.slices.subspan(first));
    SumOfSquares(device.handle(), {.x = run.x,
                                   .slices = run.slices,
                                   .ranges = device.launch_memory().Put(run.ranges.data(), run.slices),
                                   .max_slice_size = run.longest,
                                   .partials = sums + run.slices,
                                   .sums = sums});
    stream.ToHost(args.sums.data() + first, sums, run.slices * static_cast<int64_t>(sizeof(double)));
    first += run.slices;
  }
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
      .cached_attention = CachedAttentionOperation,
      .convert = Launched<ConvertArgs, cuda::Convert>,
      .copy_to_residuals = Launched<CopyToResidualsArgs, cuda::CopyToResiduals>,
      .cross_entropy = CrossEntropyOperation,
      .embedding_forward = EmbeddingForwardOperation,
      .embedding_backward = EmbeddingBackwardOperation,
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
      .sums_of_squares = SumsOfSquaresOperation,
      .top_candidates = Launched<TopCandidatesArgs, cuda::TopCandidates>,
      .unfold = UnfoldOperation,
      .weighted_sum_forward = Launched<WeightedSumForwardArgs, cuda::WeightedSumForward>,
      .weighted_sum_backward = Launched<WeightedSumBackwardArgs, cuda::WeightedSumBackward>,
      .write_batch = WriteBatch};
  static_assert(kWidestDeviceRow == kWidestRow && kWidestDeviceHead == kWidestHead);
  return kOperations;
}

}  // namespace hadal::cuda
