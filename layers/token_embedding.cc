#include "layers/token_embedding.h"

#include <cmath>
#include <vector>

#include "kernels/embedding.h"

namespace hadal {

TokenEmbedding::TokenEmbedding(const ModelPlan& plan, int32_t sublayer, ArenaLayout& layout)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      table_(plan.sublayers[sublayer].table),
      multiplier_(std::sqrt(static_cast<float>(plan.options.d_model))),
      dropout_(plan.options.dropout),
      positions_slice_(
          layout.ReserveLasting<float>("weights", int64_t{plan.options.max_positions} * plan.options.d_model)),
      positions_(nullptr, plan.options.max_positions, plan.options.d_model) {}

void TokenEmbedding::Bind(const Arena& arena) {
  positions_.data = arena.Get<float>(positions_slice_);
  if (arena.device() == nullptr) return FillSinusoidalPositions(positions_);
  std::vector<float> values(positions_.rows * positions_.columns);
  FillSinusoidalPositions({values.data(), positions_.rows, positions_.columns});
  arena.device()->CopyIn(positions_.data, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
}

ConstTokens TokenEmbedding::Tokens(const SublayerContext& context) const {
  const std::vector<int32_t>& tokens = stack_ == Stack::kEncoder ? context.batch.source : context.batch.target_input;
  return {tokens.data(), static_cast<int64_t>(tokens.size())};
}

TokenPlaces TokenEmbedding::Places(const SublayerContext& context) const {
  if (context.places == nullptr) return {};
  return stack_ == Stack::kEncoder ? context.places->source : context.places->target;
}

void TokenEmbedding::Forward(const SublayerContext& context, const PieceTensors& tensors) const {
  EmbeddingForward(context.stream, {.tokens = Tokens(context),
                                    .offsets = context.offsets(stack_),
                                    .table = context.parameters.ProductWeight(table_),
                                    .positions = positions_,
                                    .multiplier = multiplier_,
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                                    .places = Places(context),
                                    .x = tensors.y});
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = sublayer_, .values = tensors.y});
}

void TokenEmbedding::ForwardAt(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens,
                               ConstTokens positions, const TokenPlaces& places, AnyMatrix x) const {
  EmbeddingForward(stream, {.tokens = tokens,
                            .row_positions = positions,
                            .table = parameters.ProductWeight(table_),
                            .positions = positions_,
                            .multiplier = multiplier_,
                            .places = places,
                            .x = x});
}

void TokenEmbedding::BackwardInput(const SublayerContext& context, const PieceTensors& tensors, int32_t) const {
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer_, .values = tensors.d_y});
  EmbeddingBackward(context.stream, {.tokens = Tokens(context),
                                     .dx = tensors.d_y,
                                     .multiplier = multiplier_,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual),
                                     .places = Places(context),
                                     .d_table = context.parameters.TableGradient(sublayer_)});
}

}  // namespace hadal
