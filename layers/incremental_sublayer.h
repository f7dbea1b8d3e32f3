// A decoder sublayer run one step at a time: B rows, each the newest token of one hypothesis, against a cache of the
// earlier tokens.
//
//   self-attention    q|k|v = x·W_qkvᵀ + b; k|v are appended to the cache; attends over the hypothesis's own path
//   cross-attention   q = x·W_qᵀ + b; attends over k|v of the encoder's output, which CacheEncoderOutput caches once
//   feed-forward      as in training
// Then follow the residual connection and norm of layers/segment.h, one sublayer at a time: a pre-norm sublayer's norm
// runs alone before the branch, with the same bits as the fused norm. Where layers combine the outputs of all layers
// before them, the caller makes the combination (layers/layer_combination.h), and x of a layer's first sublayer is the
// combination.
//
// Cache: one matrix a decoder layer, for self- and cross-attention alike; a row is [k | v], 2d numbers. A row is
// written once and never moved. An index says which rows a hypothesis sees (kernels/cached_attention.h), so reordering
// a beam moves integers only.
// Storage: weights, caches and what products read and write as ModelPlan::compute_storage, the residual stream as
// residual_storage, as in training (layers/segment.h). With bf16 the fp32 masters are not read; norms, learned scalars
// and the biases of residual_norm are fp32.
// A device may find at places in its memory what changes from step to step (pipeline/decode/decode_blocks.h). Then
// every step launches the same kernels.
// Numerics: a row's result does not depend on the other rows as long as B ≥ 16 (kernels/linear.h); on a device as long
// as B is always the same. It agrees with the training forward to rounding, not to the bit, because the attention
// kernel differs.
// Thread safety: const after construction; one step at a time a scratch. Blocking; allocates nothing.
#pragma once

#include <cstdint>

#include "kernels/device_batch.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Steps and memories are padded to this many rows: in smaller products a row's bits would depend on their number.
inline constexpr int64_t kFewestDecodeRows = 16;

// The cache rows that each of B rows sees: position p of row i is cache row indices[i · stride + p].
struct CacheIndex {
  ConstTokens indices;  // [B · stride]
  int64_t stride = 0;
  ConstTokens lengths;  // [B], each ≥ 1
  // Where a device finds indices and lengths; null: launches bring them.
  const int32_t* indices_place = nullptr;
  const int32_t* lengths_place = nullptr;
};

// The cache rows that the rows of a matrix are written to, one each.
struct CacheRows {
  ConstTokens rows;
  const int32_t* place = nullptr;  // where a device finds them; null: launches bring them
};

// One step's rows.
struct IncrementalRows {
  ConstTokens tokens;         // [B] the decoder's input
  ConstTokens positions;      // [B] positions of the tokens in their hypotheses, from 0
  CacheRows cache_rows;       // [B] where k|v of this step go
  CacheIndex self;            // the path of each hypothesis, this step included
  CacheIndex encoder_output;  // the rows of the encoder output of each hypothesis's sentence
  TokenPlaces places;         // where a device finds tokens and positions; empty: launches bring them

  int64_t rows() const { return tokens.size; }
};

// Scratch of a step; one set a rank. Stored as products read and write, unless said otherwise.
class IncrementalScratch {
 public:
  struct Capacity {
    int64_t rows = 0;          // of a step
    int64_t encoder_rows = 0;  // of the source sentences of one group
    int64_t longest = 0;       // positions in a path or a source sentence
  };
  IncrementalScratch(const ModelPlan& plan, const Capacity& capacity, const Stream& stream, ArenaLayout& layout);
  void Bind(const Arena& arena);

  AnyMatrix inner(int64_t rows, int64_t columns) const { return {inner_, rows, columns, storage_}; }
  AnyMatrix attended(int64_t rows) const { return {attended_, rows, width_, storage_}; }
  AnyMatrix branch(int64_t rows) const { return {branch_, rows, width_, storage_}; }
  AnyMatrix normed(int64_t rows) const { return {normed_, rows, width_, storage_}; }
  AnyMatrix normed_hidden(int64_t rows, int64_t columns) const { return {normed_hidden_, rows, columns, storage_}; }
  // For a sum that is not the sublayer's output, stored as the residual stream. It is branch() where both are stored
  // alike.
  AnyMatrix sum(int64_t rows) const { return {sum_ == nullptr ? branch_ : sum_, rows, width_, residual_storage_}; }
  // The input of the current layer, stored as the residual stream; used where the layer's last sum adds its input.
  AnyMatrix layer_input(int64_t rows) const { return {layer_input_, rows, width_, residual_storage_}; }
  Vector mean(int64_t rows) const { return {statistics_, rows}; }
  Vector rstd(int64_t rows) const { return {statistics_ + rows_, rows}; }
  Vector attention() const { return {attention_, attention_floats_}; }

 private:
  Storage storage_, residual_storage_;
  int64_t rows_ = 0, width_ = 0, attention_floats_ = 0;
  ArenaSlice inner_slice_, attended_slice_, branch_slice_, normed_slice_, normed_hidden_slice_, sum_slice_,
      layer_input_slice_, statistics_slice_, attention_slice_;
  void *inner_ = nullptr, *attended_ = nullptr, *branch_ = nullptr, *normed_ = nullptr, *normed_hidden_ = nullptr,
       *sum_ = nullptr, *layer_input_ = nullptr;
  float *statistics_ = nullptr, *attention_ = nullptr;
};

// What a step's sublayers share.
struct IncrementalContext {
  const Stream& stream;
  const ParameterStore& parameters;
  const IncrementalScratch& scratch;
  const IncrementalRows& rows;
  int64_t update = 1;  // its branch gains are used, ≥ 1
  // Where a device finds the branch gains of sublayers ≥ first_sublayer; null: launches bring them.
  const float* branch_gains = nullptr;
  int32_t first_sublayer = 0;
};

class IncrementalSublayer {
 public:
  // REQUIRES: plan.sublayers[sublayer] is an attention or feed-forward sublayer of the decoder.
  IncrementalSublayer(const ModelPlan& plan, int32_t sublayer);

  SublayerKind kind() const { return kind_; }

  // Cross-attention: writes keys and values of `encoder_output` [R, d] to the rows of `cache` that `rows` [R] names.
  // REQUIRES: R ≥ kFewestDecodeRows.
  void CacheEncoderOutput(const Stream& stream, const ParameterStore& parameters, const IncrementalScratch& scratch,
                          ConstAnyMatrix encoder_output, const CacheRows& rows, AnyMatrix cache) const;

  // x' = the sublayer with its residual connection. x, out [B, d], stored as the residual stream; after the last
  // sublayer of a stack that does not combine its layers, `out` is stored as products read it (out_storage()). `out`
  // may not alias x. `cache` [cache rows, 2d]: the layer's.
  void Step(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache, AnyMatrix out) const;
  Storage out_storage() const { return out_storage_; }

 private:
  void SelfAttention(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache, AnyMatrix y) const;
  void CrossAttention(const IncrementalContext& context, ConstAnyMatrix x, ConstAnyMatrix cache, AnyMatrix y) const;
  void FeedForward(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix y) const;
  void Attend(const IncrementalContext& context, ConstAnyMatrix q, ConstAnyMatrix cache, const CacheIndex& index,
              AnyMatrix y) const;
  // normed = LN(x); `norm_scale`: the parameter with the norm's scale.
  void Norm(const IncrementalContext& context, int32_t norm_scale, ConstAnyMatrix x, AnyMatrix normed) const;
  // y = x − the parameter `shift`; does nothing where `shift` is −1.
  void Shift(const IncrementalContext& context, int32_t shift, ConstAnyMatrix x, AnyMatrix y) const;
  // What the branch reads: x after the norm of a pre-norm sublayer and after a shift.
  ConstAnyMatrix BranchInput(const IncrementalContext& context, ConstAnyMatrix x) const;
  void Residual(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix branch, AnyMatrix out) const;
  // From the sum to `out`, where no norm does that: learned scalars, or a rounding, or nothing.
  void Close(const IncrementalContext& context, ConstAnyMatrix sum, AnyMatrix out) const;

  const int32_t sublayer_;
  const SublayerRecord record_;
  SublayerKind kind_;
  Storage storage_, residual_storage_, out_storage_;
  int64_t d_model_, d_ff_;
  int32_t heads_;
  bool keeps_input_;  // the first sublayer of a layer whose last sum adds the layer's input
  // Parameters. q, k and v of self-attention follow each other, and so do k and v of cross-attention, and their biases.
  int32_t input_weight_ = -1, input_bias_ = -1;          // q, or fc1
  int32_t key_value_weight_ = -1, key_value_bias_ = -1;  // cross-attention
  int32_t output_weight_ = -1, output_bias_ = -1;        // out_proj, or fc2
  // -1 where the method has none. A norm's shift follows its scale.
  int32_t norm_scale_ = -1, norm_behind_ = -1, head_scale_ = -1, inner_norm_scale_ = -1, output_norm_scale_ = -1;
  int32_t omega_ = -1;
  int32_t input_shift_ = -1, hidden_shift_ = -1, contraction_shift_ = -1, closing_shift_ = -1, closing_scale_ = -1;
};

}  // namespace hadal
