// A decoder sublayer that runs one step at a time: B rows, each the newest token of one hypothesis, with a cache of the
// earlier tokens.
//
//   self-attention    q|k|v = x·W_qkvᵀ + b; appends k|v to the cache; attends over its path: the hypothesis's tokens
//   cross-attention   q = x·W_qᵀ + b; attends over k|v of the encoder's output, which CacheEncoderOutput caches once
//   feed-forward      as in training
// Then the residual connection and norm of layers/segment.cc, one sublayer at a time: a pre-norm sublayer's norm runs
// alone before the branch, with the same bits as the fused norm. If layers combine the outputs of all layers before
// them, the caller computes the combination (layers/layer_combination.h) and passes it as x of a layer's first
// sublayer.
//
// With several residual streams (layers/hyper_segment.cc) x and `out` are [n·B, d], the residuals of a row side by
// side; before and after the stack there is one.
//
// Cache: one matrix per decoder layer, for self- and cross-attention; a row is [k | v] of the K heads of
// keys, each D wide: 2·K·D numbers. Keys are stored normed and, of self-attention, turned. A row is written
// once and never moved. An index lists the rows of each hypothesis (kernels/cached_attention.h), so reordering a beam
// moves integers only.
// Storage: weights, caches and the products' operands and results as ModelPlan::compute_storage, the residual stream as
// residual_storage, as in training (layers/segment.cc). With bf16 the fp32 masters are not read; norms, learned scalars
// and the biases of residual_norm are fp32.
// Values that change between steps may be in device memory (pipeline/decode/decode_buffers.h). Every step then launches
// the same kernels.
// Numerics: a row's result does not depend on the other rows, but on a device its bits may depend on B. It equals the
// training forward up to rounding, because the kernels of attention and, on a CPU, of products differ.
// Thread safety: const after construction; one step at a time per scratch. Blocking on the CPU, asynchronous on a
// device; allocates nothing.
#pragma once

#include <cstdint>

#include "kernels/device_batch.h"
#include "kernels/hyper_connection.h"
#include "kernels/linear.h"
#include "layers/branch_parts.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "layers/position_tables.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// A step of fewer rows takes as long as one of this many: the time of reading the weights.
inline constexpr int64_t kFewestDecodeRows = 16;

// The cache rows of each of B rows: position p of row i is cache row indices[i · stride + p].
struct CacheIndex {
  ConstTokens indices;  // [B · stride]
  int64_t stride = 0;
  ConstTokens lengths;  // [B], each ≥ 1
  // On a device: indices and lengths in device memory, both or neither; null: the host's values are copied.
  const int32_t* device_indices = nullptr;
  const int32_t* device_lengths = nullptr;
};

// The cache row that each row of a matrix is written to.
struct CacheRows {
  ConstTokens rows;
  const int32_t* device_rows = nullptr;  // on a device: rows in device memory; null: the host's are copied
};

// The rows of one step.
struct IncrementalRows {
  ConstTokens tokens;          // [B] the decoder's input
  ConstTokens positions;       // [B] positions of the tokens in their hypotheses, from 0
  CacheRows cache_rows;        // [B] destination of this step's k|v
  CacheIndex self;             // the path of each hypothesis, including this step
  CacheIndex encoder_output;   // the rows of the encoder output of each hypothesis's sentence
  DeviceTokens device_tokens;  // tokens and positions in device memory; null: the host's are copied

  int64_t rows() const { return tokens.size; }
};

// Scratch of a step; one per rank. Stored as ModelPlan::compute_storage unless stated otherwise.
class IncrementalScratch {
 public:
  struct Capacity {
    int64_t rows = 0;          // per step
    int64_t encoder_rows = 0;  // of the source sentences that are translated together
    int64_t longest = 0;       // most positions in a path or a source sentence
  };
  IncrementalScratch(const ModelPlan& plan, const Capacity& capacity, const Stream& stream, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // The result of a branch's first product: q|k|v, q, or the feed-forward's. Then the inputs and
  // results of the steps that follow; `hidden` is behind the activation.
  AnyMatrix inner(int64_t rows, int64_t columns) const { return {inner_, rows, columns, storage_}; }
  // [rows, columns], columns ≤ max(d, H·D): the outputs of the heads; free memory before these exist.
  AnyMatrix attended(int64_t rows, int64_t columns) const { return {attended_, rows, columns, storage_}; }
  AnyMatrix branch(int64_t rows) const { return {branch_, rows, width_, storage_}; }
  AnyMatrix normed(int64_t rows) const { return normed(rows, width_); }
  AnyMatrix normed(int64_t rows, int64_t columns) const { return {normed_, rows, columns, storage_}; }
  AnyMatrix hidden(int64_t rows, int64_t columns) const { return {hidden_, rows, columns, storage_}; }
  AnyMatrix normed_hidden(int64_t rows, int64_t columns) const { return {normed_hidden_, rows, columns, storage_}; }
  // For a sum that is not the sublayer's output, in the residual stream's type. The same memory as branch() if both
  // types are equal.
  AnyMatrix sum(int64_t rows) const { return {sum_ == nullptr ? branch_ : sum_, rows, width_, residual_storage_}; }
  // With several residual streams, fp32: all of them; what a sublayer reads; the maps and their projection
  // (kernels/hyper_connection.h).
  Matrix residuals(int64_t rows) const { return {residuals_, rows, residual_count_ * width_}; }
  Matrix read(int64_t rows) const { return {read_, rows, width_}; }
  Matrix projected_maps(int64_t rows) const { return {maps_, rows, hyper_logits_}; }
  Matrix maps(int64_t rows) const { return {maps_ + rows_ * hyper_logits_, rows, HyperMaps(residual_count_)}; }
  // The input of the current layer, in the residual stream's type, if the layer's last sum adds it.
  AnyMatrix layer_input(int64_t rows) const { return {layer_input_, rows, width_, residual_storage_}; }
  float* statistics() const { return statistics_; }  // of a norm (PlainNorm)
  Vector mean(int64_t rows) const { return {statistics_, rows}; }
  Vector rstd(int64_t rows) const { return {statistics_ + rows, rows}; }
  Vector attention() const { return {attention_, attention_floats_}; }

 private:
  Storage storage_, residual_storage_;
  int64_t rows_ = 0, width_ = 0, residual_count_ = 1, hyper_logits_ = 0, attention_floats_ = 0;
  ArenaBuffer<std::byte> inner_, attended_, branch_, normed_, normed_hidden_, hidden_, sum_, layer_input_;
  ArenaBuffer<float> statistics_, attention_, residuals_, read_, maps_;
};

// Arguments shared by a step's sublayers.
struct IncrementalContext {
  const Stream& stream;
  const ParameterStore& parameters;
  const IncrementalScratch& scratch;
  const IncrementalRows& rows;
  const RotaryTables& rotary;  // of self-attention
  int64_t update = 1;          // determines the branch gains; ≥ 1
  // On a device: the branch gains of sublayers ≥ first_sublayer in device memory; null: computed from `update`.
  const float* branch_gains = nullptr;
  int32_t first_sublayer = 0;
};

class IncrementalSublayer {
 public:
  // REQUIRES: plan.sublayers[sublayer] is an attention or feed-forward sublayer of the decoder.
  IncrementalSublayer(const ModelPlan& plan, int32_t sublayer);

  SublayerKind kind() const { return kind_; }

  // Cross-attention: writes keys and values of `encoder_output` [R, d] to the rows `rows` [R] of `cache`.
  void CacheEncoderOutput(const Stream& stream, const ParameterStore& parameters, const IncrementalScratch& scratch,
                          ConstAnyMatrix encoder_output, const CacheRows& rows, AnyMatrix cache) const;

  // Writes to `out` the sublayer's result with its residual connection. x, out [B, d], in the residual stream's type;
  // after the last sublayer of a stack that does not combine its layers, `out` has the type that products read
  // (out_storage()). `out` must not alias x. `cache` [cache rows, 2·K·D]: of the layer; not read by a feed-forward.
  // `second` [B, d]: the stack's second stream, updated in place (second_stream.h); empty if it has none. In a stack
  // that reads blocks (block_reader.h) x is what the sublayer reads, `second` the open block's sum in front of the
  // sublayer, empty at a block's start, and `out` receives that sum behind the sublayer; it may be `second`.
  void Step(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache, AnyMatrix out, Matrix second) const;
  // The type of `out`, and the number of residual streams in it.
  Storage out_storage() const { return out_storage_; }
  int64_t out_residuals() const { return ends_stack_ ? 1 : residuals_; }

 private:
  void SelfAttention(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache, AnyMatrix y) const;
  void CrossAttention(const IncrementalContext& context, ConstAnyMatrix x, ConstAnyMatrix cache, AnyMatrix y) const;
  void FeedForward(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix y) const;
  void Attend(const IncrementalContext& context, ConstAnyMatrix q, ConstAnyMatrix cache, const CacheIndex& index,
              ConstAnyMatrix gate, AnyMatrix y) const;
  // The last product, and the norm after the branch if there is one; `free`: memory like product.y for that norm's
  // input.
  void Project(const IncrementalContext& context, LinearForwardArgs product, AnyMatrix free) const;
  void Norm(const IncrementalContext& context, int32_t norm_scale, ConstAnyMatrix x, AnyMatrix normed,
            float norm_gain = 1) const;
  // y = x − the parameter `shift`; does nothing if `shift` is −1.
  void Shift(const IncrementalContext& context, int32_t shift, ConstAnyMatrix x, AnyMatrix y) const;
  // Returns the branch's input: x after the norm of a pre-norm sublayer and after a shift.
  ConstAnyMatrix BranchInput(const IncrementalContext& context, ConstAnyMatrix x) const;
  // The device address of the branch gain; null: it is only on the host, or always 1.
  const float* DeviceBranchGain(const IncrementalContext& context) const;
  void Residual(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix branch, AnyMatrix out,
                Matrix second) const;
  // Returns F(input), which is in the scratch.
  AnyMatrix Branch(const IncrementalContext& context, ConstAnyMatrix input, AnyMatrix cache) const;
  // out = r·x + b·(branch + bias), without what a norm or a skip adds.
  void AddBranch(const IncrementalContext& context, ConstAnyMatrix x, float residual_gain, AnyMatrix branch,
                 AnyMatrix out) const;
  // Step with several streams.
  void HyperStep(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache, AnyMatrix out) const;
  // Converts the sum to `out` if no norm does so: by learned scalars, by rounding, or not at all.
  void Close(const IncrementalContext& context, ConstAnyMatrix sum, AnyMatrix out) const;

  const int32_t sublayer_;
  const SublayerRecord record_;
  SublayerKind kind_;
  Storage storage_, residual_storage_, out_storage_;
  int64_t d_model_, d_ff_, query_width_, key_width_;
  int32_t heads_, group_;
  bool keeps_input_;  // the first sublayer of a layer whose last sum adds the layer's input
  bool begins_stack_, ends_stack_, reads_blocks_;
  int64_t residuals_;
  HyperMixing mixing_;
  // Parameters. q, k and v of self-attention are consecutive, and so are k and v of cross-attention, and their biases.
  int32_t input_weight_ = -1, input_bias_ = -1;          // q, or fc1
  int32_t key_value_weight_ = -1, key_value_bias_ = -1;  // cross-attention
  int32_t output_weight_ = -1, output_bias_ = -1;        // out_proj, or fc2
  // -1 if the method has none. A norm's shift follows its scale.
  int32_t norm_scale_ = -1, norm_behind_ = -1, head_scale_ = -1, inner_norm_scale_ = -1;
  int32_t input_norm_scale_ = -1, output_norm_scale_ = -1;
  int32_t omega_ = -1;
  HeadNorms head_norms_;
  int32_t reach_;              // of self-attention's window
  int64_t gate_width_;         // columns of self-attention's gate; 0: none
  int32_t hyper_weight_ = -1;  // the maps' gates and bias follow
  int32_t input_shift_ = -1, hidden_shift_ = -1, contraction_shift_ = -1, closing_shift_ = -1, closing_scale_ = -1;
};

}  // namespace hadal
