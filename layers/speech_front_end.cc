#include "layers/speech_front_end.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/linear.h"
#include "kernels/unfold.h"
#include "runtime/check.h"

namespace hadal {

double FrontEndProducts(const ModelOptions& options) {
  if (!options.reads_speech()) return 0;
  const double channels = options.front_end_channels;
  const double inner_rows = kConvolutionStride;  // of each row of y
  return kConvolutionTaps * channels * (inner_rows * options.frame_width + options.d_model);
}

SpeechFrontEnd::SpeechFrontEnd(const ModelPlan& plan, int64_t rows, Purpose purpose, ArenaLayout& layout)
    : sublayer_(plan.source_embedding()),
      first_parameter_(plan.sublayers[plan.source_embedding()].first_parameter),
      rows_(rows),
      width_(plan.options.d_model),
      frame_width_(plan.options.frame_width),
      channels_(plan.options.front_end_channels),
      multiplier_(std::sqrt(static_cast<float>(plan.options.d_model))),
      dropout_(plan.options.dropout),
      training_(purpose == Purpose::kTraining),
      positions_slice_(layout.ReserveLasting<float>("weights", int64_t{plan.options.max_positions} * width_)),
      positions_(nullptr, plan.options.max_positions, width_) {
  const auto reserve = [&](int64_t elements) { return layout.Reserve<float>("workspace", elements); };
  const int64_t inner_width = channels_ / 2;
  row_slice_ = layout.Reserve<int32_t>("workspace", rows);
  offset_slice_ = layout.Reserve<int32_t>("workspace", rows + 1);
  inner_slice_ = reserve(kConvolutionStride * rows * inner_width);
  unfolded_slice_ = reserve(kRows * kConvolutionTaps * std::max(frame_width_, inner_width));
  if (!training_) {
    z_slice_ = reserve(kRows * std::max(channels_, 2 * width_));
    return;
  }
  unfolded_gradient_slice_ = reserve(kRows * kConvolutionTaps * inner_width);
  inner_gradient_slice_ = reserve(kConvolutionStride * rows * inner_width);
  gradient_slice_ = reserve(rows * width_);
}

void SpeechFrontEnd::Bind(const Arena& arena) {
  HADAL_CHECK(arena.device() == nullptr);
  positions_.data = arena.Get<float>(positions_slice_);
  FillSinusoidalPositions(positions_);
  row_numbers_ = arena.Get<int32_t>(row_slice_);
  inner_offsets_ = arena.Get<int32_t>(offset_slice_);
  inner_ = arena.Get<float>(inner_slice_);
  unfolded_ = arena.Get<float>(unfolded_slice_);
  if (!training_) {
    z_ = arena.Get<float>(z_slice_);
    return;
  }
  unfolded_gradient_ = arena.Get<float>(unfolded_gradient_slice_);
  inner_gradient_ = arena.Get<float>(inner_gradient_slice_);
  gradient_ = arena.Get<float>(gradient_slice_);
}

int64_t SpeechFrontEnd::saved_bytes() const {
  return training_ ? rows_ * (kConvolutionStride * channels_ + 2 * width_) * int64_t{sizeof(float)} : 0;
}

SpeechFrontEnd::Both SpeechFrontEnd::Convolutions(const SublayerContext& context, const PieceTensors& tensors) const {
  const PackedBatch& batch = context.batch;
  HADAL_CHECK_EQ(int64_t{batch.frame_width}, frame_width_);
  const int64_t sentences = std::ssize(batch.frame_offsets) - 1;
  HADAL_CHECK_LE(sentences, rows_);
  inner_offsets_[0] = 0;
  for (int64_t n = 0; n < sentences; ++n) {
    const int64_t frames = batch.frame_offsets[n + 1] - batch.frame_offsets[n];
    inner_offsets_[n + 1] = inner_offsets_[n] + static_cast<int32_t>(UnfoldedRows(frames));
  }
  const int64_t rows = batch.source_rows(), inner_rows = inner_offsets_[sentences];
  HADAL_CHECK_LE(rows, rows_);
  float* const saved = reinterpret_cast<float*>(tensors.saved);
  const ConstTokens inner_offsets(inner_offsets_, sentences + 1);
  return {
      .first = {.weight = first_parameter_,
                .x = ConstMatrix(batch.frames.data(), batch.frame_offsets[sentences], frame_width_),
                .x_offsets = {batch.frame_offsets.data(), sentences + 1},
                .y_offsets = inner_offsets,
                .z = training_ ? Matrix(saved, inner_rows, channels_) : Matrix(z_, kRows, channels_),
                .rows = inner_rows},
      .second = {.weight = first_parameter_ + 2,
                 .x = ConstMatrix(inner_, inner_rows, channels_ / 2),
                 .x_offsets = inner_offsets,
                 .y_offsets = context.offsets(Stack::kEncoder),
                 .z = training_ ? Matrix(saved + kConvolutionStride * rows_ * channels_, rows, 2 * width_)
                                : Matrix(z_, kRows, 2 * width_),
                 .rows = rows},
  };
}

void SpeechFrontEnd::ConvolveForward(const SublayerContext& context, const Convolution& convolution, Matrix y) const {
  // A last block of fewer rows than those whose bits depend on their number (kernels/linear.h) begins earlier.
  const int64_t last = std::max<int64_t>(0, convolution.rows - 16);
  for (int64_t block = 0; block < convolution.rows; block += kRows) {
    const int64_t first = std::min(block, last), rows = std::min(kRows, convolution.rows - first);
    const Matrix u(unfolded_, rows, kConvolutionTaps * convolution.x.columns);
    const Matrix z = convolution.z.Rows(training_ ? first : 0, rows);
    Unfold(context.stream, {.x = convolution.x,
                            .x_offsets = convolution.x_offsets,
                            .u_offsets = convolution.y_offsets,
                            .first = first,
                            .u = u});
    LinearForward(context.stream, {.x = u,
                                   .weight = context.parameters.ProductWeight(convolution.weight),
                                   .bias = context.parameters.ProductBias(convolution.weight + 1),
                                   .y = z});
    GluForward(context.stream, {.z = z, .y = y.Rows(first, rows)});
  }
}

void SpeechFrontEnd::ConvolveBackward(const SublayerContext& context, const Convolution& convolution, ConstMatrix dy,
                                      Matrix dx) const {
  GluBackward(context.stream, {.dy = dy, .z = convolution.z});
  for (int64_t first = 0; first < convolution.rows; first += kRows) {
    const int64_t rows = std::min(kRows, convolution.rows - first);
    const Matrix u(unfolded_, rows, kConvolutionTaps * convolution.x.columns);
    const ConstMatrix dz = convolution.z.Rows(first, rows);
    Unfold(context.stream, {.x = convolution.x,
                            .x_offsets = convolution.x_offsets,
                            .u_offsets = convolution.y_offsets,
                            .first = first,
                            .u = u});
    LinearBackwardWeight(context.stream, {.dy = dz,
                                          .x = u,
                                          .d_weight = context.parameters.Gradient(convolution.weight),
                                          .d_bias = context.parameters.GradientVector(convolution.weight + 1)});
    if (dx.empty()) continue;
    const Matrix du(unfolded_gradient_, rows, u.columns);
    LinearBackwardInput(context.stream,
                        {.dy = dz, .weight = context.parameters.ProductWeight(convolution.weight), .dx = du});
    Fold(context.stream,
         {.du = du, .x_offsets = convolution.x_offsets, .u_offsets = convolution.y_offsets, .first = first, .dx = dx});
  }
}

void SpeechFrontEnd::Forward(const SublayerContext& context, const PieceTensors& tensors) const {
  const Both both = Convolutions(context, tensors);
  const Matrix y = tensors.y.floats();
  ConvolveForward(context, both.first, {inner_, both.first.rows, channels_ / 2});
  ConvolveForward(context, both.second, y);
  std::iota(row_numbers_, row_numbers_ + y.rows, 0);
  EmbeddingForward(context.stream, {.tokens = {row_numbers_, y.rows},  // y is the table of its own rows
                                    .offsets = context.offsets(Stack::kEncoder),
                                    .table = y,
                                    .positions = positions_,
                                    .multiplier = multiplier_,
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                                    .x = y});
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = sublayer_, .values = tensors.y});
}

void SpeechFrontEnd::BackwardInput(const SublayerContext& context, const PieceTensors& tensors, int32_t) const {
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer_, .values = tensors.d_y});
  const Both both = Convolutions(context, tensors);
  const Matrix inner(inner_, both.first.rows, channels_ / 2);
  const Matrix d_inner(inner_gradient_, inner.rows, inner.columns), d_y(gradient_, tensors.d_y.rows, width_);
  context.stream.Clear(d_inner.data, d_inner.rows * d_inner.columns * int64_t{sizeof(float)});
  context.stream.Clear(d_y.data, d_y.rows * d_y.columns * int64_t{sizeof(float)});
  std::iota(row_numbers_, row_numbers_ + d_y.rows, 0);
  EmbeddingBackward(context.stream, {.tokens = {row_numbers_, d_y.rows},
                                     .dx = tensors.d_y,
                                     .multiplier = multiplier_,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                                     .d_table = d_y});
  GluForward(context.stream, {.z = both.first.z, .y = inner});
  ConvolveBackward(context, both.second, d_y, d_inner);
  ConvolveBackward(context, both.first, d_inner, {});
}

}  // namespace hadal
