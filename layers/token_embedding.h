// The two embeddings: x = dropout(sqrt(d)·E[token] + PE[position]), of the source and of the decoder's input.
// Shapes: x [R, d], E [V, d], PE [max_positions, d]. Numerics, order of accumulation and fairseq's conventions:
// kernels/embedding.h.
#pragma once

#include <cstdint>

#include "layers/front_end.h"

namespace hadal {

class TokenEmbedding final : public FrontEnd {
 public:
  // `sublayer`: plan.source_embedding() or plan.target_embedding(). Reserves the table of positions in `layout`.
  TokenEmbedding(const ModelPlan& plan, int32_t sublayer, ArenaLayout& layout);
  void Bind(const Arena& arena) override;

  void Forward(const SublayerContext& context, AnyMatrix x) const override;
  // One decoding step, without dropout: writes x [R, d] of `tokens` [R], each at its own position, counted from 0.
  // `places`: on a device, tokens and positions in device memory; may be empty.
  void ForwardAt(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens, ConstTokens positions,
                 const TokenPlaces& places, AnyMatrix x) const;
  // Adds to the gradient of this use of the table.
  void Backward(const SublayerContext& context, ConstAnyMatrix d_x) const override;

 private:
  ConstTokens Tokens(const SublayerContext& context) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t table_;
  float multiplier_;
  double dropout_;
  ArenaSlice positions_slice_;
  Matrix positions_;  // [max_positions, d]
};

}  // namespace hadal
