// The lookup of adaptive input: x[r] = E_c[token − first_c]·P_cᵀ, c the token's band (adaptive_bands.h), and its
// gradients. TokenEmbedding scales it and adds positions.
//
// Order of accumulation: band 0, 1, …, each in blocks of kAdaptiveRows of its rows, ascending; rows of E_c in ascending
// row order.
// Limitation: only on the CPU, in fp32 (device_support.h).
// Thread safety: const; one call at a time (scratch).
#pragma once

#include <cstdint>
#include <vector>

#include "layers/adaptive_bands.h"
#include "layers/parameter_store.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

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
  ArenaSlice block_slice_, index_slice_, number_slice_, gradient_slice_;
  float* block_ = nullptr;    // [2, kAdaptiveRows, d]: rows of a table, and of x; or their gradients
  int32_t* index_ = nullptr;  // [2, kAdaptiveRows]: rows, and their indices in the table
  int32_t* row_numbers_ = nullptr;
  float* gradient_ = nullptr;
};

}  // namespace hadal
