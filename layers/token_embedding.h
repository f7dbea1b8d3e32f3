// The front ends of text: y = dropout(f·E[token] + PE[position]), of the source and of the decoder's input. f:
// ModelOptions::embedding_factor. PE is fixed, learned or absent (Block::positions). With Block::embedding_norm
// y = dropout(norm(f·E[token] + PE[position])); the sum and the norm's statistics are saved.
// A part (chunk_part.h) that writes y and reads d_y. With adaptive input E[token] is AdaptiveInput's.
// Shapes: y [R, d], E [V, d], PE [max_positions, d]. Numerics, order of accumulation and fairseq's conventions:
// kernels/embedding.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layers/adaptive_bands.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/parameter_store.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// The lookup of adaptive input: x[r] = E_c[token − first_c]·P_cᵀ, c the token's band (adaptive_bands.h), and its
// gradients. TokenEmbedding scales it and adds positions. Only on the CPU, in fp32 (device_support.h).
// Order of accumulation: band 0, 1, …, each in blocks of kAdaptiveRows of its rows, ascending; rows of E_c in ascending
// row order. Thread safety: const; one call at a time (scratch).
class AdaptiveInput {
 public:
  // For up to `rows` rows. For training also reserves the rows' gradient.
  AdaptiveInput(const ModelPlan& plan, int32_t sublayer, int64_t rows, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Writes the rows of `tokens` [R] to x [R, d] (=).
  void Lookup(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens, Matrix x) const;
  // Returns [0, 1, …, rows − 1]: the tokens with which the embedding's kernel uses x as its table
  // (kernels/embedding.h).
  ConstTokens Rows(int64_t rows) const { return {row_numbers_, rows}; }
  // Returns a cleared buffer [rows, d] for the gradient of x.
  Matrix ClearedGradient(int64_t rows) const;
  // Adds to the gradients of this use of the tables and projections.
  void AddGradients(const Stream& stream, const ParameterStore& parameters, ConstTokens tokens, ConstMatrix d_x) const;

 private:
  // [rows, w_c]: the rows of the band's table.
  Matrix Gather(const ParameterStore& parameters, const AdaptiveBand& band, ConstTokens tokens, ConstTokens rows) const;

  int32_t sublayer_, table_;
  int64_t width_, rows_;
  std::vector<AdaptiveBand> bands_;
  ArenaBuffer<float> block_;    // [2, kAdaptiveRows, d]: rows of a table, and of x; or their gradients
  ArenaBuffer<int32_t> index_;  // [2, kAdaptiveRows]: rows, and their indices in the table
  ArenaBuffer<int32_t> row_numbers_;
  ArenaBuffer<float> gradient_;
};

class TokenEmbedding final : public ChunkPart {
 public:
  // `sublayer`: plan.source_embedding() or plan.target_embedding(). Reserves the table of positions in `layout`, and
  // for adaptive input scratch for `rows` rows.
  TokenEmbedding(const ModelPlan& plan, int32_t sublayer, int64_t rows, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena) override;
  int64_t saved_bytes() const override;

  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  // Also adds to the gradient of this use of the table, because d_y is not kept for BackwardWeight.
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;
  // One step of decoding, without dropout: x [R, d] (=) of `tokens` [R], each at its own position, counted from 0.
  // `device_tokens`: on a device, tokens and positions there; null: the host's are copied.
  void ForwardAt(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace, ConstTokens tokens,
                 ConstTokens positions, const DeviceTokens& device_tokens, AnyMatrix x) const;

 private:
  ConstTokens Tokens(const SublayerContext& context) const;
  // PE; empty: the model adds no positions.
  ConstMatrix PositionsOf(const ParameterStore& parameters) const;
  // What the norm reads and its statistics.
  struct Saved {
    AnyMatrix sum;
    float* statistics = nullptr;
  };
  // The first `rows` rows in `memory`, saved_bytes() bytes.
  Saved SavedIn(std::byte* memory, int64_t rows) const;
  // y = dropout(norm(saved.sum)); y may be saved.sum.
  void Norm(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace, const Saved& saved,
            const Dropout& dropout, AnyMatrix y) const;
  // Replaces d_y, the gradient of y, by that of the sum which the norm reads.
  void BackwardNorm(const SublayerContext& context, const PartTensors& tensors) const;
  // The tokens in device memory.
  DeviceTokens DeviceTokensOf(const SublayerContext& context) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t table_;
  std::optional<AdaptiveInput> adaptive_;
  float multiplier_;
  double dropout_;
  int32_t learned_positions_;  // parameter, or −1
  PlainNorm norm_;
  Storage storage_;  // of y
  int64_t rows_, width_;
  ArenaSlice positions_slice_;
  Matrix positions_;  // [max_positions, d] fixed positions
};

}  // namespace hadal
