// DecoderChunk computes one contiguous range of sublayers on one rank for decoding: the encoder's part once per group
// of sentences, the decoder's part once per step.
//
//   Encode:  source embedding or border → encoder sublayers → border; then the keys and values of the encoder's
//            output for every cross-attention here; the output crosses the border if later chunks have cross-attention
//   Step:    target embedding or border → decoder sublayers against their caches → border, or the head's candidates
// Caches: one matrix per decoder layer, with a part for each lane. A step reads only rows that its group has written,
// and row 0, which padding rows share (decode_buffers.h); row 0 starts as zeros, so that they do not compute NaN from
// old memory contents. The encoder uses training's segments, cut wherever the plan allows, so a source's output has the
// bits of an evaluation. On a device every group and step has the same number of rows, and tables that change are at
// fixed addresses (decode_buffers.h, batch_slots.h), so Encode and Step are launched as graphs (graph_cache.h). A chunk
// never communicates. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "layers/block_reader.h"
#include "layers/candidate_head.h"
#include "layers/chunk_part.h"
#include "layers/incremental_sublayer.h"
#include "layers/layer_combination.h"
#include "layers/second_stream.h"
#include "layers/token_embedding.h"
#include "pipeline/decode/decode_buffers.h"
#include "pipeline/layout/decode_capacity.h"
#include "pipeline/stage/batch_slots.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/arena.h"

namespace hadal {

class DecoderChunk {
 public:
  struct Launching {
    bool on_device = false;
    bool graphs = false;  // launch CUDA graphs; ignored unless on_device
    bool logits = false;  // whether Candidates may return the logits of all tokens
  };
  // Sublayers [first, last) of the plan. `known_input`, `known_output`: KnownInFrontOf this chunk and the next
  // (pipeline/layout/pipeline_layout.h). `candidates`: CandidatesPerHypothesis (pipeline/options/decoder_options.h).
  // `plan` and `buffers` must outlive the chunk.
  DecoderChunk(const ModelPlan& plan, int32_t first, int32_t last, int64_t known_input, int64_t known_output,
               const DecodeCapacity& capacity, int32_t candidates, DecodeBuffers& buffers, const Launching& launching,
               ArenaLayout& layout);
  void Bind(const Arena& arena);
  // Call before the first Encode of a translation: initialises the memory that is read before it is written, and the
  // branch gains. `update`: number of updates applied to the weights, ≥ 1; growing gains (BranchNorm) depend on it.
  void Begin(const Stream& stream, int64_t update) const;

  // Whether Encode and Step read from the border before the chunk (input) and write to the one after it (output), and
  // whether they do anything.
  bool encode_input() const { return encode_input_; }
  bool encode_output() const { return encode_output_; }
  bool encodes() const { return encode_input_ || first_ == 0; }
  bool step_input() const { return step_input_; }
  bool step_output() const { return step_output_; }
  bool steps() const { return step_input_ || embedding_target_.has_value(); }

  // The buffer for the residual from the border before the chunk; the caller fills it before Encode or Step if
  // encode_input() or step_input(). It has `rows` rows for each residual stream. In a stack that keeps its history it
  // has `rows` rows for each entry that is not in the buffers yet: the rank's previous chunk has left the others there.
  AnyMatrix EncodeInput(int64_t rows) const {
    return Lacking(WholeEncodeInput(rows), step_input_ ? 0 : known_input_ * rows);
  }
  AnyMatrix StepInput(int64_t rows) const { return Lacking(WholeStepInput(rows), known_input_ * rows); }
  // The second stream at the border before the chunk, which must be filled before Encode or Step, and at the border
  // after it, which holds the result. Empty: no second stream crosses that border.
  Matrix EncodeSecondInput(int64_t rows) const { return Crossing(input_second_, Stack::kEncoder, rows); }
  Matrix EncodeSecondOutput(int64_t rows) const { return Crossing(output_second_, Stack::kEncoder, rows); }
  Matrix StepSecondInput(int64_t rows) const { return Crossing(input_second_, Stack::kDecoder, rows); }
  Matrix StepSecondOutput(int64_t rows) const { return Crossing(output_second_, Stack::kDecoder, rows); }

  // Runs the encoder's part on the sources of context.batch for `lane`, and writes their keys and values to the cache
  // rows `encoder_output`. Returns the chunk's output residual; of a history only the entries that the next
  // chunk's rank lacks.
  ConstAnyMatrix Encode(const SublayerContext& context, const CacheRows& encoder_output, int32_t lane);
  // Runs one step of `lane`. Returns as Encode.
  ConstAnyMatrix Step(const IncrementalContext& context, int32_t lane);
  // Returns the candidates of the last Step, which had `rows` rows; with `logits` also the logits of all tokens.
  // REQUIRES: the chunk has the output head.
  CandidateTable Candidates(const Stream& stream, int64_t rows, bool logits) const {
    return head_->Table(stream, buffers_.workspace(), rows, logits);
  }

  // The graphs that the chunk launches; null: none.
  const GraphCache* graphs() const { return graphs_.get(); }

 private:
  struct EncoderSegment {
    std::unique_ptr<ChunkPart> part;
    int32_t first = 0, end = 0;  // sublayers
  };
  struct DecoderSublayer {
    IncrementalSublayer sublayer;
    int32_t cache = 0;  // index in caches_
    // For a stack that keeps its history. DLCL: a layer's first sublayer reads `combination` of it. Attention
    // Residuals: every sublayer reads it by `reader`, and the open block's sum if it has one (`in_block`: the
    // sublayer is not the first of its block). `entry`: the history's entry that the sublayer writes; −1: none.
    std::optional<LayerCombination> combination = {};
    std::optional<BlockReader> reader = {};
    bool in_block = false;
    int64_t entry = -1;
  };

  // Whether Encode does more than pass its input on; if not, there is nothing to record as a graph.
  bool EncodeLaunches() const;
  // Runs `launch`, on a device as a graph of `key` if possible.
  void Run(const Stream& stream, const GraphKey& key, const std::function<void()>& launch) const;
  ConstAnyMatrix EncodeSublayers(const SublayerContext& context, const CacheRows& encoder_output, int32_t lane) const;
  ConstAnyMatrix StepSublayers(const IncrementalContext& context, int32_t lane) const;
  void AddEncoderSegments(const ModelPlan& plan, const DecodeCapacity& capacity);
  void AddDecoderSublayers(const ModelPlan& plan, const DecodeCapacity& capacity, ArenaLayout& layout);
  // What closes a stack that keeps its history.
  struct Closing {
    std::optional<LayerCombination> combination;
    std::optional<BlockReadingEnd> reading;
    int64_t entries = 0;
  };
  // If the stack of the sublayers [first, last) here keeps its history: adds that and returns the number of entries
  // before them. Otherwise returns 0.
  int64_t AddHistory(const ModelPlan& plan, int32_t first, int32_t last, int64_t rows, Closing& closing);
  AnyMatrix WholeEncodeInput(int64_t rows) const {
    return Input(encode_history_, encode_residuals_ * rows, encode_storage_);
  }
  AnyMatrix WholeStepInput(int64_t rows) const { return Input(step_history_, step_residuals_ * rows, step_storage_); }
  template <typename Any>
  static Any Lacking(const Any& residual, int64_t known_rows) {
    return residual.Rows(known_rows, residual.rows - known_rows);
  }
  AnyMatrix Input(int64_t history_entries, int64_t rows, Storage storage) const {
    return history_entries > 0 ? buffers_.history(history_entries, rows, storage) : buffers_.residual(0, rows, storage);
  }
  Matrix Crossing(std::optional<Stack> crosses, Stack stack, int64_t rows) const {
    return crosses == stack ? buffers_.second(rows) : Matrix();
  }
  // The stack's second stream, if it has one.
  Matrix Second(Stack stack, int64_t rows) const {
    return plan_.HasSecondStream(stack) ? buffers_.second(rows) : Matrix();
  }
  // Closes a stack that keeps its history, once that is complete. Returns the stack's output stream.
  ConstAnyMatrix Close(const Closing& closing, const Stream& stream, const ParameterStore& parameters, Stack stack,
                       int64_t rows) const;
  // Returns what a decoder sublayer reads: x, or in a stack that keeps its history what it computes of the history and
  // the open block's sum. `at`: the last residual buffer in use.
  ConstAnyMatrix ReadHistory(const IncrementalContext& context, const DecoderSublayer& s, ConstAnyMatrix x,
                             int& at) const;
  AnyMatrix CacheOf(const DecoderSublayer& s, int32_t lane) const {
    const AnyMatrix all(caches_[s.cache], lanes_ * cache_rows_, 2 * plan_.options.key_width(), plan_.compute_storage);
    return all.Rows(lane * cache_rows_, cache_rows_);
  }

  const ModelPlan& plan_;
  int32_t first_, last_;
  int64_t known_input_, known_output_, d_model_, cache_rows_;
  int32_t lanes_;
  DecodeBuffers& buffers_;
  bool encode_input_ = false, encode_output_ = false, step_input_ = false, step_output_ = false;
  std::unique_ptr<ChunkPart> front_end_;  // of the source
  std::optional<TokenEmbedding> embedding_target_;
  std::vector<EncoderSegment> encoder_;
  std::vector<DecoderSublayer> decoder_;
  Storage encode_storage_, step_storage_;              // of the input streams
  int64_t encode_residuals_ = 1, step_residuals_ = 1;  // of the input streams
  int64_t encode_history_ = 0, step_history_ = 0;      // entries of earlier chunks; 0: that stack keeps none
  Closing encoder_closing_, decoder_closing_;
  std::optional<SecondStreamEnd> encoder_second_end_, decoder_second_end_;
  std::optional<Stack> input_second_, output_second_;  // whose second stream crosses the borders
  std::optional<CandidateHead> head_;
  std::vector<ArenaSlice> cache_slices_;
  std::vector<std::byte*> caches_;
  // Used on a device.
  std::optional<BatchSlots> groups_;  // one slot per lane
  ArenaSlice branch_gains_slice_;
  float* branch_gains_ = nullptr;       // [last − first] for the step
  std::unique_ptr<GraphCache> graphs_;  // or null
  // Views of the output residuals. A graph writes its residual to the address used when it was recorded.
  ConstAnyMatrix encoded_, stepped_;
};

}  // namespace hadal
