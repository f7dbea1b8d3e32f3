// A decoder sublayer run one step at a time: B rows, each the newest token of one hypothesis, against a cache of the past.
//
//   self-attention    q|k|v = x·W_qkvᵀ + b; k|v are appended to the cache; context over the hypothesis's own path
//   cross-attention   q = x·W_qᵀ + b; context over the encoder memory's k|v, cached once a sentence by CacheMemory
//   feed-forward      as in training
// and then the same residual connection and norm as layers/segment.h, here one sublayer at a time: for pre-norm the sublayer's
// norm runs alone in front, bit-equal to the fused one. Where layers combine all outputs in front of them, the caller does
// (layers/layer_combination.h): x of a layer's first sublayer is the combination.
//
// Cache: one matrix a decoder layer, rows [k | v] of 2d floats, for self- and cross-attention alike. A row is written once and
// never moved: which rows a hypothesis sees is an index (kernels/cached_attention.h), so reordering a beam moves integers only.
// Numerics: a row's result does not depend on its neighbours as long as B ≥ 16 (kernels/linear.h); it agrees with the training
// forward to rounding, not to the bit, because the attention kernel differs.
// Thread safety: const after construction; one step at a time a scratch. Blocking; allocates nothing.
#pragma once

#include <cstdint>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Products of fewer rows would change bits with their number: steps and memories are filled up to this.
inline constexpr int64_t kFewestDecodeRows = 16;

// Cache rows seen by each of B rows: position p of row i lies in cache row indices[i · stride + p].
struct CacheIndex {
  ConstTokens indices;  // [B · stride]
  int64_t stride = 0;
  ConstTokens lengths;  // [B], each ≥ 1
};

// One step's rows.
struct IncrementalRows {
  ConstTokens tokens;      // [B] the decoder's input
  ConstTokens positions;   // [B] of those tokens in their hypotheses, from 0
  ConstTokens cache_rows;  // [B] where this step's k|v go
  CacheIndex self;         // the path of each hypothesis, this step included
  CacheIndex memory;       // the rows of its sentence's memory

  int64_t rows() const { return tokens.size; }
};

// Scratch of a step; one set a rank.
class IncrementalScratch {
 public:
  // For at most `rows` rows and paths or memories of at most `longest` positions.
  IncrementalScratch(const ModelPlan& plan, int64_t rows, int64_t longest, const Stream& stream, ArenaLayout& layout);
  void Bind(const Arena& arena);

  Matrix inner(int64_t rows, int64_t columns) const { return {inner_, rows, columns}; }
  Matrix attended(int64_t rows) const { return {attended_, rows, width_}; }
  Matrix branch(int64_t rows) const { return {branch_, rows, width_}; }
  Matrix normed(int64_t rows) const { return {normed_, rows, width_}; }
  // What the layer under way read; kept where its last sum adds it.
  Matrix layer_input(int64_t rows) const { return {layer_input_, rows, width_}; }
  Matrix normed_hidden(int64_t rows, int64_t columns) const { return {normed_hidden_, rows, columns}; }
  Vector mean(int64_t rows) const { return {statistics_, rows}; }
  Vector rstd(int64_t rows) const { return {statistics_ + rows_, rows}; }
  Vector attention() const { return {attention_, attention_floats_}; }

 private:
  int64_t rows_ = 0, width_ = 0, attention_floats_ = 0;
  ArenaSlice inner_slice_, attended_slice_, branch_slice_, normed_slice_, normed_hidden_slice_, layer_input_slice_,
      statistics_slice_, attention_slice_;
  float *inner_ = nullptr, *attended_ = nullptr, *branch_ = nullptr, *normed_ = nullptr, *normed_hidden_ = nullptr,
        *layer_input_ = nullptr, *statistics_ = nullptr, *attention_ = nullptr;
};

// What a step's sublayers share.
struct IncrementalContext {
  const Stream& stream;
  const ParameterStore& parameters;
  const IncrementalScratch& scratch;
  const IncrementalRows& rows;
  int64_t update = 1;  // whose branch gain is used, ≥ 1
};

class IncrementalSublayer {
 public:
  // REQUIRES: plan.sublayers[sublayer] is an attention or feed-forward sublayer of the decoder.
  IncrementalSublayer(const ModelPlan& plan, int32_t sublayer);

  SublayerKind kind() const { return kind_; }

  // Cross-attention: the memory's keys and values, key_value [R, 2d] (=).  REQUIRES: R ≥ kFewestDecodeRows.
  void CacheMemory(const Stream& stream, const ParameterStore& parameters, ConstMatrix memory, Matrix key_value) const;

  // x' = the sublayer with its residual connection.  x, out [B, d]; `out` may not alias x. `cache` [cache rows, 2d]: the layer's.
  void Step(const IncrementalContext& context, ConstMatrix x, Matrix cache, Matrix out) const;

 private:
  void SelfAttention(const IncrementalContext& context, ConstMatrix x, Matrix cache, Matrix y) const;
  void CrossAttention(const IncrementalContext& context, ConstMatrix x, ConstMatrix cache, Matrix y) const;
  void FeedForward(const IncrementalContext& context, ConstMatrix x, Matrix y) const;
  void Attend(const IncrementalContext& context, ConstMatrix q, ConstMatrix cache, const CacheIndex& index,
              Matrix y) const;
  // normed = LN(x) with the scale that is parameter `norm_scale`.
  void Norm(const IncrementalContext& context, int32_t norm_scale, ConstMatrix x, Matrix normed) const;
  // y = x − the parameter `shift`, or nothing where that is −1.
  void Shift(const IncrementalContext& context, int32_t shift, ConstMatrix x, Matrix y) const;
  // What the branch reads: x behind the norm of a pre-norm sublayer and behind a shift.
  ConstMatrix BranchInput(const IncrementalContext& context, ConstMatrix x) const;
  void Residual(const IncrementalContext& context, ConstMatrix x, Matrix branch, Matrix out) const;

  const SublayerRecord record_;
  SublayerKind kind_;
  int64_t d_model_, d_ff_;
  int32_t heads_;
  bool keeps_input_;  // a layer's first sublayer whose input the last one adds
  // Parameters. q, k and v of self-attention, k and v of cross-attention lie next to each other, as do their biases.
  int32_t input_weight_ = -1, input_bias_ = -1;          // q, or fc1
  int32_t key_value_weight_ = -1, key_value_bias_ = -1;  // cross-attention
  int32_t output_weight_ = -1, output_bias_ = -1;        // out_proj, or fc2
  // -1 where the method has none; shifts follow scales.
  int32_t norm_scale_ = -1, norm_behind_ = -1, head_scale_ = -1, inner_norm_scale_ = -1, output_norm_scale_ = -1;
  int32_t omega_ = -1;
  int32_t input_shift_ = -1, hidden_shift_ = -1, contraction_shift_ = -1, closing_shift_ = -1, closing_scale_ = -1;
};

}  // namespace hadal
