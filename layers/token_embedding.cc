#include "layers/token_embedding.h"

#include <algorithm>
#include <numeric>

#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "layers/position_tables.h"
#include "runtime/check.h"

namespace hadal {

AdaptiveInput::AdaptiveInput(const ModelPlan& plan, int32_t sublayer, int64_t rows, Purpose purpose,
                             ArenaLayout& layout)
    : sublayer_(sublayer),
      table_(plan.sublayers[sublayer].table),
      width_(plan.options.d_model),
      rows_(rows),
      bands_(AdaptiveBands(plan.options)) {
  block_ = layout.Reserve<float>("workspace", 2 * kAdaptiveRows * width_);
  index_ = layout.Reserve<int32_t>("workspace", 2 * kAdaptiveRows);
  row_numbers_ = layout.ReserveLasting<int32_t>("weights", rows);
  if (purpose == Purpose::kTraining) gradient_ = layout.Reserve<float>("workspace", rows * width_);
}

void AdaptiveInput::Bind(const Arena& arena) {
  hadal::Bind(arena, block_, index_, row_numbers_, gradient_);
  if (arena.device() == nullptr) std::iota(row_numbers_.data(), row_numbers_ + rows_, 0);
}

Matrix AdaptiveInput::ClearedGradient(int64_t rows) const {
  HADAL_CHECK_LE(rows, rows_);
  std::fill_n(gradient_.data(), rows * width_, 0.0f);
  return {gradient_, rows, width_};
}

Matrix AdaptiveInput::Gather(const ParameterStore& parameters, const AdaptiveBand& band, ConstTokens tokens,
                             ConstTokens rows) const {
  const ConstMatrix table = parameters.ProductWeight(table_ + TableOfBand(band.index)).floats();
  const Matrix gathered(block_, rows.size, band.width);
  for (int64_t i = 0; i < rows.size; ++i) {
    const int32_t place = index_[kAdaptiveRows + i] = tokens[rows[i]] - band.first;
    std::copy_n(table.row(place), band.width, gathered.row(i));
  }
  return gathered;
}

void AdaptiveInput::Lookup(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens, Matrix x) const {
  HADAL_CHECK(stream.device() == nullptr);
  const int32_t bands = static_cast<int32_t>(bands_.size());
  for (const AdaptiveBand& band : bands_) {
    const ConstAnyMatrix projection = parameters.ProductWeight(table_ + ProjectionOfBand(band.index, bands));
    ForBandRows(tokens, band, {index_, kAdaptiveRows}, [&](ConstTokens rows) {
      const Matrix projected(block_ + kAdaptiveRows * width_, rows.size, width_);
      LinearForward(stream, {.x = Gather(parameters, band, tokens, rows), .weight = projection, .y = projected});
      for (int64_t i = 0; i < rows.size; ++i) std::copy_n(projected.row(i), width_, x.row(rows[i]));
    });
  }
}

void AdaptiveInput::AddGradients(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens,
                                 ConstMatrix d_x) const {
  const int32_t bands = static_cast<int32_t>(bands_.size());
  for (const AdaptiveBand& band : bands_) {
    const int32_t projection = table_ + ProjectionOfBand(band.index, bands);
    const int32_t table = table_ + TableOfBand(band.index);
    ForBandRows(tokens, band, {index_, kAdaptiveRows}, [&](ConstTokens rows) {
      const Matrix d_projected(block_ + kAdaptiveRows * width_, rows.size, width_);
      for (int64_t i = 0; i < rows.size; ++i) std::copy_n(d_x.row(rows[i]), width_, d_projected.row(i));
      const Matrix gathered = Gather(parameters, band, tokens, rows);
      LinearBackwardWeight(
          stream, {.dy = d_projected, .x = gathered, .d_weight = parameters.TableGradient(sublayer_, projection)});
      LinearBackwardInput(stream, {.dy = d_projected, .weight = parameters.ProductWeight(projection), .dx = gathered});
      EmbeddingBackward(stream, {.tokens = {index_ + kAdaptiveRows, rows.size},
                                 .dx = gathered,
                                 .d_table = parameters.TableGradient(sublayer_, table)});
    });
  }
}

TokenEmbedding::TokenEmbedding(const ModelPlan& plan, int32_t sublayer, int64_t rows, Purpose purpose,
                               ArenaLayout& layout)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      table_(plan.sublayers[sublayer].table),
      multiplier_(plan.options.embedding_factor()),
      dropout_(plan.options.dropout),
      learned_positions_(plan.ParameterOf(sublayer, ParameterRole::kPositionTable)),
      norm_(plan, sublayer, ParameterRole::kEmbeddingNormScale),
      storage_(plan.residual_storage(stack_)),
      rows_(rows),
      width_(plan.options.d_model) {
  if (plan.options.block.positions == Positions::kSinusoidal) {
    positions_ = Matrix(nullptr, plan.options.max_positions, plan.options.d_model);
    positions_slice_ = layout.ReserveLasting<float>("weights", positions_.rows * positions_.columns);
  }
  if (plan.Tables(sublayer) > 1) adaptive_.emplace(plan, sublayer, rows, purpose, layout);
}

void TokenEmbedding::Bind(const Arena& arena) {
  if (adaptive_) adaptive_->Bind(arena);
  if (positions_.rows == 0) return;
  positions_.data = arena.Get<float>(positions_slice_);
  PlacePositions(arena, positions_);
}

int64_t TokenEmbedding::saved_bytes() const {
  if (!norm_.present()) return 0;
  SavedTensors saved(nullptr);
  saved.Take(storage_, rows_, width_);
  saved.TakeFloats(2, rows_);
  return saved.bytes();
}

TokenEmbedding::Saved TokenEmbedding::SavedIn(std::byte* memory, int64_t rows) const {
  SavedTensors saved(memory);
  const AnyMatrix sum = saved.Take(storage_, rows_, width_);
  return {sum.Rows(0, rows), saved.TakeFloats(2, rows_).data};
}

// The residual connection's kernel twice: the norm alone, then without its residual, 0·sum + dropout(normed).
void TokenEmbedding::Norm(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace,
                          const Saved& saved, const Dropout& dropout, AnyMatrix y) const {
  const AnyMatrix normed = workspace.branch(y.rows);
  norm_.Forward(stream, parameters, saved.sum, normed, saved.statistics);
  ResidualNormForward(stream,
                      {.residual = saved.sum, .branch = normed, .residual_gain = 0, .dropout = dropout, .sum = y});
}

ConstMatrix TokenEmbedding::PositionsOf(const ParameterStore& parameters) const {
  return learned_positions_ >= 0 ? parameters.Weight(learned_positions_) : positions_;
}

ConstTokens TokenEmbedding::Tokens(const SublayerContext& context) const {
  const std::vector<int32_t>& tokens = stack_ == Stack::kEncoder ? context.batch.source : context.batch.target_input;
  return {tokens.data(), static_cast<int64_t>(tokens.size())};
}

DeviceTokens TokenEmbedding::DeviceTokensOf(const SublayerContext& context) const {
  if (context.device_batch == nullptr) return {};
  return stack_ == Stack::kEncoder ? context.device_batch->source : context.device_batch->target;
}

void TokenEmbedding::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  ConstTokens tokens = Tokens(context);
  ConstAnyMatrix table = context.parameters.ProductWeight(table_);
  if (adaptive_) {  // y is the table of its own rows
    adaptive_->Lookup(context.stream, context.parameters, tokens, tensors.y.floats());
    tokens = adaptive_->Rows(tokens.size);
    table = tensors.y;
  }
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual);
  const bool norms = norm_.present();
  const Saved saved = norms ? SavedIn(tensors.saved, tokens.size) : Saved();
  EmbeddingForward(context.stream, {.tokens = tokens,
                                    .offsets = context.offsets(stack_),
                                    .table = table,
                                    .positions = PositionsOf(context.parameters),
                                    .multiplier = multiplier_,
                                    .dropout = norms ? Dropout() : dropout,
                                    .device_tokens = DeviceTokensOf(context),
                                    .x = norms ? saved.sum : tensors.y});
  if (norms) Norm(context.stream, context.parameters, context.workspace, saved, dropout, tensors.y);
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = sublayer_, .values = tensors.y});
}

void TokenEmbedding::ForwardAt(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace,
                               ConstTokens tokens, ConstTokens positions, const DeviceTokens& device_tokens,
                               AnyMatrix x) const {
  ConstAnyMatrix table = parameters.ProductWeight(table_);
  if (adaptive_) {
    adaptive_->Lookup(stream, parameters, tokens, x.floats());
    tokens = adaptive_->Rows(tokens.size);
    table = x;
  }
  EmbeddingForward(stream, {.tokens = tokens,
                            .row_positions = positions,
                            .table = table,
                            .positions = PositionsOf(parameters),
                            .multiplier = multiplier_,
                            .device_tokens = device_tokens,
                            .x = x});
  if (!norm_.present()) return;
  Norm(stream, parameters, workspace, {x, workspace.row_loss(x.rows).data}, Dropout(), x);
}

void TokenEmbedding::BackwardNorm(const SublayerContext& context, const PartTensors& tensors) const {
  const AnyMatrix d_normed = context.workspace.branch_input_gradient(tensors.d_y.rows);
  const Saved saved = SavedIn(tensors.saved, tensors.d_y.rows);
  ResidualNormBackward(context.stream, {.d_sum = tensors.d_y,
                                        .residual_gain = 0,
                                        .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                                        .d_residual = tensors.d_y,
                                        .d_branch = d_normed});
  norm_.Backward(context, saved.sum, saved.statistics, d_normed, tensors.d_y);
}

void TokenEmbedding::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer_, .values = tensors.d_y});
  const ConstTokens tokens = Tokens(context);
  const Matrix looked_up = adaptive_ ? adaptive_->ClearedGradient(tokens.size) : Matrix();
  const bool norms = norm_.present();
  if (norms) BackwardNorm(context, tensors);
  EmbeddingBackward(
      context.stream,
      {.tokens = adaptive_ ? adaptive_->Rows(tokens.size) : tokens,
       .dx = tensors.d_y,
       .multiplier = multiplier_,
       .dropout = norms ? Dropout() : context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
       .device_tokens = DeviceTokensOf(context),
       .d_table = adaptive_ ? looked_up : context.parameters.TableGradient(sublayer_),
       .d_positions = learned_positions_ >= 0 ? context.parameters.Gradient(learned_positions_) : Matrix(),
       .offsets = context.offsets(stack_)});
  if (adaptive_) adaptive_->AddGradients(context.stream, context.parameters, tokens, looked_up);
}

}  // namespace hadal
