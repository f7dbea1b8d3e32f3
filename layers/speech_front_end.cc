#include "layers/speech_front_end.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/activation.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/unfold.h"
#include "layers/position_tables.h"
#include "runtime/check.h"

namespace hadal {
namespace {

GluForwardArgs GluOf(const AnyMatrix& z, const AnyMatrix& y) {
  return {.value = z.Columns(0, y.columns), .gate = z.Columns(y.columns, y.columns), .y = y};
}

}  // namespace

double FrontEndProducts(const ModelOptions& options) {
  if (!options.reads_speech()) return 0;
  const double channels = options.front_end_channels;
  const double inner_rows = kConvolutionStride;  // of each row of y
  return kConvolutionTaps * channels * (inner_rows * options.frame_width + options.d_model);
}

SpeechFrontEnd::SpeechFrontEnd(const ModelPlan& plan, int64_t rows, DeviceKind kind, Purpose purpose,
                               ArenaLayout& layout)
    : sublayer_(plan.source_embedding()),
      first_parameter_(plan.sublayers[plan.source_embedding()].first_parameter),
      storage_(plan.compute_storage),
      rows_(rows),
      block_rows_(kind == DeviceKind::kCpu ? kRows : std::min(kDeviceRows, kConvolutionStride * rows)),
      width_(plan.options.d_model),
      frame_width_(plan.options.frame_width),
      channels_(plan.options.front_end_channels),
      multiplier_(plan.options.embedding_factor()),
      dropout_(plan.options.dropout),
      training_(purpose == Purpose::kTraining) {
  if (plan.options.adds_positions()) {
    positions_ = Matrix(nullptr, plan.options.max_positions, width_);
    positions_slice_ = layout.ReserveLasting<float>("weights", positions_.rows * width_);
  }
  const std::string category = "workspace";
  const auto reserve = [&](int64_t elements) { return layout.ReserveBytes(category, elements * BytesOf(storage_)); };
  const int64_t inner_width = channels_ / 2;
  row_numbers_ = layout.ReserveHostBytes(category, rows * int64_t{sizeof(int32_t)});
  inner_offsets_ = layout.ReserveHostBytes(category, (rows + 1) * int64_t{sizeof(int32_t)});
  inner_ = reserve(kConvolutionStride * rows * inner_width);
  unfolded_ = reserve(block_rows_ * kConvolutionTaps * std::max(frame_width_, inner_width));
  if (!training_) {
    z_ = reserve(block_rows_ * std::max(channels_, 2 * width_));
    return;
  }
  unfolded_gradient_ = reserve(block_rows_ * kConvolutionTaps * inner_width);
  inner_gradient_ = layout.Reserve<float>(category, kConvolutionStride * rows * inner_width);
  gradient_ = layout.Reserve<float>(category, rows * width_);
}

void SpeechFrontEnd::Bind(const Arena& arena) {
  if (positions_.rows > 0) {
    positions_.data = arena.Get<float>(positions_slice_);
    PlacePositions(arena, positions_);
  }
  hadal::Bind(arena, row_numbers_, inner_offsets_);
  hadal::Bind(arena, inner_, unfolded_, z_, unfolded_gradient_);
  hadal::Bind(arena, inner_gradient_, gradient_);
}

int64_t SpeechFrontEnd::saved_bytes() const {
  if (!training_) return 0;
  SavedTensors saved(nullptr);
  saved.Take(storage_, kConvolutionStride * rows_, channels_);
  saved.Take(storage_, rows_, 2 * width_);
  return saved.bytes();
}

SpeechFrontEnd::Both SpeechFrontEnd::Convolutions(const SublayerContext& context, const PartTensors& tensors) const {
  const PackedBatch& batch = context.batch;
  HADAL_CHECK_EQ(int64_t{batch.frame_width}, frame_width_);
  const int64_t sentences = std::ssize(batch.frame_offsets) - 1;
  HADAL_CHECK_LE(sentences, rows_);
  inner_offsets_[0] = 0;
  for (int64_t n = 0; n < sentences; ++n) {
    const int64_t frames = batch.frame_offsets[n + 1] - batch.frame_offsets[n];
    inner_offsets_[n + 1] = inner_offsets_[n] + static_cast<int32_t>(UnfoldedRows(frames));
  }
  const bool on_device = context.stream.device() != nullptr;
  HADAL_CHECK(!on_device || context.device_batch != nullptr);
  const DeviceFrames device_frames = on_device ? context.device_batch->speech : DeviceFrames();
  const int64_t rows = batch.source_rows();
  const int64_t inner_rows = on_device ? kConvolutionStride * rows : inner_offsets_[sentences];
  HADAL_CHECK_LE(rows, rows_);
  SavedTensors saved(tensors.saved);
  const ConstTokens inner_offsets(inner_offsets_, sentences + 1);
  Both both = {
      .first = {.weight = first_parameter_,
                .x = ConstMatrix(on_device ? device_frames.frames : batch.frames.data(), batch.frame_offsets[sentences],
                                 frame_width_),
                .x_offsets = {batch.frame_offsets.data(), sentences + 1},
                .y_offsets = inner_offsets,
                .device_taps = device_frames.inner,
                .rows = inner_rows},
      .second = {.weight = first_parameter_ + 2,
                 .x = Inner(inner_rows),
                 .x_offsets = inner_offsets,
                 .y_offsets = context.offsets(Stack::kEncoder),
                 .device_taps = device_frames.outer,
                 .rows = rows},
  };
  if (training_) {
    both.first.z = saved.Take(storage_, kConvolutionStride * rows_, channels_).Rows(0, inner_rows);
    both.second.z = saved.Take(storage_, rows_, 2 * width_).Rows(0, rows);
  } else {
    both.first.z = AnyMatrix(z_, block_rows_, channels_, storage_);
    both.second.z = AnyMatrix(z_, block_rows_, 2 * width_, storage_);
  }
  return both;
}

void SpeechFrontEnd::ConvolveForward(const SublayerContext& context, const Convolution& convolution,
                                     AnyMatrix y) const {
  // A last block of fewer rows than those whose bits depend on their number (kernels/linear.h) begins earlier.
  const int64_t last = std::max<int64_t>(0, convolution.rows - 16);
  for (int64_t block = 0; block < convolution.rows; block += block_rows_) {
    const int64_t first = std::min(block, last), rows = std::min(block_rows_, convolution.rows - first);
    const AnyMatrix u(unfolded_, rows, kConvolutionTaps * convolution.x.columns, storage_);
    const AnyMatrix z = convolution.z.Rows(training_ ? first : 0, rows);
    Unfold(context.stream, {.x = convolution.x,
                            .x_offsets = convolution.x_offsets,
                            .u_offsets = convolution.y_offsets,
                            .first = first,
                            .device_taps = convolution.device_taps,
                            .u = u});
    LinearForward(context.stream, {.x = u,
                                   .weight = context.parameters.ProductWeight(convolution.weight),
                                   .bias = context.parameters.ProductBias(convolution.weight + 1),
                                   .y = z});
    GluForward(context.stream, GluOf(z, y.Rows(first, rows)));
  }
}

void SpeechFrontEnd::ConvolveBackward(const SublayerContext& context, const Convolution& convolution, ConstMatrix dy,
                                      Matrix dx) const {
  const AnyMatrix value = convolution.z.Columns(0, dy.columns), gate = convolution.z.Columns(dy.columns, dy.columns);
  GluBackward(context.stream, {.dy = dy, .value = value, .gate = gate, .d_value = value, .d_gate = gate});
  for (int64_t first = 0; first < convolution.rows; first += block_rows_) {
    const int64_t rows = std::min(block_rows_, convolution.rows - first);
    const AnyMatrix u(unfolded_, rows, kConvolutionTaps * convolution.x.columns, storage_);
    const ConstAnyMatrix dz = convolution.z.Rows(first, rows);
    Unfold(context.stream, {.x = convolution.x,
                            .x_offsets = convolution.x_offsets,
                            .u_offsets = convolution.y_offsets,
                            .first = first,
                            .device_taps = convolution.device_taps,
                            .u = u});
    LinearBackwardWeight(context.stream, {.dy = dz,
                                          .x = u,
                                          .d_weight = context.parameters.Gradient(convolution.weight),
                                          .d_bias = context.parameters.GradientVector(convolution.weight + 1)});
    if (dx.empty()) continue;
    const AnyMatrix du(unfolded_gradient_, rows, u.columns, storage_);
    LinearBackwardInput(context.stream,
                        {.dy = dz, .weight = context.parameters.ProductWeight(convolution.weight), .dx = du});
    Fold(context.stream, {.du = du,
                          .x_offsets = convolution.x_offsets,
                          .u_offsets = convolution.y_offsets,
                          .first = first,
                          .device_taps = convolution.device_taps,
                          .dx = dx});
  }
}

void SpeechFrontEnd::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Both both = Convolutions(context, tensors);
  const AnyMatrix y = tensors.y;
  ConvolveForward(context, both.first, Inner(both.first.rows));
  ConvolveForward(context, both.second, y);
  std::iota(row_numbers_.data(), row_numbers_ + y.rows, 0);
  EmbeddingForward(context.stream,
                   {.tokens = {row_numbers_, y.rows},  // y is the table of its own rows
                    .offsets = context.offsets(Stack::kEncoder),
                    .table = y,
                    .positions = positions_,
                    .multiplier = multiplier_,
                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                    .device_tokens = context.device_batch == nullptr ? DeviceTokens() : context.device_batch->source,
                    .x = y});
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = sublayer_, .values = tensors.y});
}

void SpeechFrontEnd::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer_, .values = tensors.d_y});
  const Both both = Convolutions(context, tensors);
  const AnyMatrix inner = Inner(both.first.rows);
  const Matrix d_inner(inner_gradient_, inner.rows, inner.columns), d_y(gradient_, tensors.d_y.rows, width_);
  context.stream.Clear(d_inner.data, d_inner.rows * d_inner.columns * int64_t{sizeof(float)});
  context.stream.Clear(d_y.data, d_y.rows * d_y.columns * int64_t{sizeof(float)});
  std::iota(row_numbers_.data(), row_numbers_ + d_y.rows, 0);
  EmbeddingBackward(context.stream,
                    {.tokens = {row_numbers_, d_y.rows},
                     .dx = tensors.d_y,
                     .multiplier = multiplier_,
                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                     .device_tokens = context.device_batch == nullptr ? DeviceTokens() : context.device_batch->source,
                     .d_table = d_y});
  GluForward(context.stream, GluOf(both.first.z, inner));
  ConvolveBackward(context, both.second, d_y, d_inner);
  ConvolveBackward(context, both.first, d_inner, {});
}

}  // namespace hadal
