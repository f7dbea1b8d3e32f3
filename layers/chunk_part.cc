#include "layers/chunk_part.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/attention_residual.h"
#include "kernels/cuda_host/own_memory.h"
#include "kernels/hyper_connection.h"
#include "kernels/residual_norm.h"
#include "kernels/weighted_sum.h"
#include "layers/adaptive_bands.h"

namespace hadal {
namespace {

constexpr int64_t kWorkspaceBoundary = 256;  // cuBLASLt's
int64_t RowsWithin(int64_t vocabulary, Storage storage, int64_t most) {
  if (vocabulary <= Workspace::kSmallVocabulary) return most;
  constexpr int64_t kFewest = Workspace::kFewestLogitRows;
  const int64_t rows = Workspace::kLogitBytes / (vocabulary * BytesOf(storage));
  return std::clamp(rows / kFewest * kFewest, kFewest, most);
}

// Of the output head's widest product.
int64_t LogitColumns(const ModelOptions& options) {
  if (!options.adaptive()) return options.target_vocabulary;
  int64_t columns = 0;
  for (const AdaptiveBand& band : AdaptiveBands(options)) {
    columns = std::max<int64_t>(columns, band.words + (band.index == 0 ? options.adaptive_cutoffs.count : 0));
  }
  return columns;
}

}  // namespace

Workspace::Workspace(const ModelPlan& plan, const ActivationCapacity& capacity, const Stream& stream, Purpose purpose,
                     ArenaLayout& layout, bool forks)
    : storage_(plan.compute_storage),
      width_(plan.options.d_model),
      query_width_(plan.options.query_width()),
      key_width_(plan.options.key_width()),
      logit_columns_(LogitColumns(plan.options)),
      logit_rows_(LogitRows(stream.kind(), plan)),
      logit_stride_(LogitStride(stream.kind(), logit_columns_)),
      rotary_(plan, layout) {
  const std::string category = "workspace";
  const auto reserve = [&](int64_t elements) { return layout.ReserveBytes(category, elements * BytesOf(storage_)); };
  const int64_t rows = std::max(capacity.source_rows, capacity.target_rows);
  const int64_t d = plan.options.d_model;
  branch_ = reserve(rows * d);
  if (plan.options.block.query_key_norm) {
    normed_queries_ = reserve(rows * query_width_);
    normed_keys_ = reserve(rows * key_width_);
  }
  attention_floats_ = AttentionScratch(stream, {.query_rows = rows,
                                                .max_length = capacity.max_length,
                                                .heads = plan.options.heads,
                                                .head_width = plan.options.head_width()});
  attention_ = layout.Reserve<float>(category, attention_floats_);
  loss_rows_ = std::max(capacity.target_rows, kLogitRows);
  logits_ = reserve(std::min(logit_rows_, loss_rows_) * logit_stride_);
  row_values_ = plan.options.has_decoder() ? 2 : 3;
  row_loss_ = layout.Reserve<float>(category, row_values_ * loss_rows_);
  host_row_loss_ = layout.ReserveHostBytes(category, row_values_ * loss_rows_ * int64_t{sizeof(float)});
  if (purpose == Purpose::kInference) return;
  branch_input_ = reserve(rows * d);
  attended_ = reserve(rows * query_width_);
  const StackMethod &encoder = plan.options.encoder, &decoder = plan.options.decoder;
  const int32_t residuals = std::max(encoder.residual_streams, decoder.residual_streams);
  if (encoder.skip_gain != 0 || decoder.skip_gain != 0 || residuals > 1 || encoder.reads_blocks() ||
      decoder.reads_blocks()) {
    layer_input_ = layout.Reserve<float>(category, rows * d);
  }
  const bool hidden_norm = encoder.ffn_inner_norm || decoder.ffn_inner_norm;
  const int64_t widest_norm = std::max({d, query_width_, int64_t{hidden_norm ? plan.options.d_ff : 0}});
  partial_floats_ = ResidualNormPartials(rows, widest_norm);
  if (encoder.combine_layers || decoder.combine_layers) {
    const int64_t entries = std::max(plan.options.encoder_layers, plan.options.decoder_layers) + 1;
    partial_floats_ = std::max(partial_floats_, WeightedSumPartials(rows, entries));
  }
  for (const StackMethod* stack : {&encoder, &decoder}) {
    const int64_t logits = HyperLogits(stack->residual_mixing, stack->residual_streams);
    partial_floats_ = std::max(partial_floats_, HyperPartials(rows, logits));
  }
  for (const Stack stack : {Stack::kEncoder, Stack::kDecoder}) {
    if (!plan.ReadsBlocks(stack)) continue;
    const int64_t readers = std::min(kMostReaders, int64_t{plan.BlockSublayers(stack)});
    partial_floats_ = std::max(partial_floats_, ReaderPartials(rows, d, readers));
  }
  partials_ = layout.Reserve<float>(category, partial_floats_);
  if (stream.kind() == DeviceKind::kCpu) return;
  gradient_batch_ = std::make_unique<GradientBatch>();
  const int64_t qkv_width = (plan.options.block.attention_gate ? 2 : 1) * query_width_ + 2 * key_width_;
  batch_floats_ = GradientBatch::Floats(
      rows, widest_norm, std::max(qkv_width, (plan.options.feed_forward_products() - 1) * int64_t{plan.options.d_ff}));
  batch_ = layout.Reserve<float>(category, batch_floats_);
  forks_ = forks;
  if (!forks) return;
  fork_ = layout.Reserve<float>(category, batch_floats_);
  fork_workspace_ = layout.ReserveBytes(category, cuda::OwnMemory::kWorkspaceBytes + kWorkspaceBoundary);
}

absl::Status Workspace::Fork(const Arena& arena) const {
  if (!forks_) return absl::OkStatus();
  std::byte* const reserved = fork_workspace_;
  return gradient_batch_->Fork(*arena.device(), {fork_, batch_floats_},
                               reserved + (-reinterpret_cast<uintptr_t>(reserved)) % kWorkspaceBoundary);
}

int64_t Workspace::LogitRows(DeviceKind kind, const ModelPlan& plan) {
  const int64_t columns = LogitStride(kind, LogitColumns(plan.options));
  return kind == DeviceKind::kCpu ? RowsWithin(columns, Storage::kFloat32, kLogitRows)
                                  : RowsWithin(columns, plan.compute_storage, 2048);
}

int64_t Workspace::DecodeRows(const ModelPlan& plan) {
  return RowsWithin(LogitStride(DeviceKind::kCuda, plan.options.target_vocabulary), Storage::kFloat32, kLogitRows);
}

void Workspace::Bind(const Arena& arena) {
  rotary_.Bind(arena);
  hadal::Bind(arena, branch_, branch_input_, attended_, logits_, normed_queries_, normed_keys_, fork_workspace_);
  hadal::Bind(arena, layer_input_, attention_, partials_, batch_, fork_, row_loss_, host_row_loss_);
  if (gradient_batch_ != nullptr) gradient_batch_->Bind({batch_, batch_floats_});
}

const float* SublayerContext::DeviceBranchGain(int32_t sublayer) const {
  if (device_batch == nullptr || !HasBranchGain(plan().sublayers[sublayer])) return nullptr;
  return device_batch->branch_gains + (sublayer - device_batch->first_sublayer);
}

void SublayerContext::Observe(const DepthObservation& observation) const {
  if (observer == nullptr) return;
  if (stream.device() == nullptr) return observer->Observe(stream, batch.micro_batch, observation);
  const int64_t rows = sentence_rows(plan().sublayers[observation.sublayer].stack);
  DepthObservation copy = observation;
  std::vector<float> values, before;
  const auto copy_to_host = [&](ConstAnyMatrix& matrix, std::vector<float>& on_host) {
    if (matrix.empty()) return;
    matrix = matrix.Rows(0, rows);
    on_host = HostValues(stream, matrix);
    matrix = ConstMatrix(on_host.data(), matrix.rows, matrix.columns);
  };
  copy_to_host(copy.values, values);
  copy_to_host(copy.before, before);
  observer->Observe(Stream::Cpu(stream.threads()), batch.micro_batch, copy);
}

}  // namespace hadal
