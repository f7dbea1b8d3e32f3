#include "layers/token_embedding.h"

#include <cmath>
#include <vector>

#include "kernels/embedding.h"
#include "layers/position_tables.h"

namespace hadal {

TokenEmbedding::TokenEmbedding(const ModelPlan& plan, int32_t sublayer, int64_t rows, Purpose purpose,
                               ArenaLayout& layout)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      table_(plan.sublayers[sublayer].table),
      multiplier_(plan.options.embedding_factor()),
      dropout_(plan.options.dropout),
      learned_positions_(plan.ParameterOf(sublayer, ParameterRole::kPositionTable)) {
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
  EmbeddingForward(context.stream, {.tokens = tokens,
                                    .offsets = context.offsets(stack_),
                                    .table = table,
                                    .positions = PositionsOf(context.parameters),
                                    .multiplier = multiplier_,
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                                    .device_tokens = DeviceTokensOf(context),
                                    .x = tensors.y});
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = sublayer_, .values = tensors.y});
}

void TokenEmbedding::ForwardAt(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens,
                               ConstTokens positions, const DeviceTokens& device_tokens, AnyMatrix x) const {
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
}

void TokenEmbedding::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer_, .values = tensors.d_y});
  const ConstTokens tokens = Tokens(context);
  const Matrix looked_up = adaptive_ ? adaptive_->ClearedGradient(tokens.size) : Matrix();
  EmbeddingBackward(
      context.stream,
      {.tokens = adaptive_ ? adaptive_->Rows(tokens.size) : tokens,
       .dx = tensors.d_y,
       .multiplier = multiplier_,
       .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
       .device_tokens = DeviceTokensOf(context),
       .d_table = adaptive_ ? looked_up : context.parameters.TableGradient(sublayer_),
       .d_positions = learned_positions_ >= 0 ? context.parameters.Gradient(learned_positions_) : Matrix(),
       .offsets = context.offsets(stack_)});
  if (adaptive_) adaptive_->AddGradients(context.stream, context.parameters, tokens, looked_up);
}

}  // namespace hadal
