// One contiguous run of sublayers on one rank, as decoding runs it: the encoder's part once a group of sentences, the decoder's
// part once a step.
//
//   Encode:  source embedding or border → encoder sublayers → border, or: the memory → keys and values of every cross-attention
//            here, and on to the chunks behind while they have any
//   Step:    target embedding or border → decoder sublayers against their caches → border, or the head's candidates
// Caches: one matrix a decoder layer with a part for each lane. The encoder runs through the segments of training, cut wherever
// the plan allows, so a source's memory has the bits of an evaluation.
// Pure arithmetic: a chunk never communicates. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layers/candidate_head.h"
#include "layers/incremental_sublayer.h"
#include "layers/layer_combination.h"
#include "layers/segment.h"
#include "layers/sublayer_context.h"
#include "layers/token_embedding.h"
#include "pipeline/decode_capacity.h"
#include "runtime/arena.h"

namespace hadal {

// Buffers that the chunks of a rank share.
class DecodeBuffers {
 public:
  DecodeBuffers(const ModelPlan& plan, const DecodeCapacity& capacity, const Stream& stream, ArenaLayout& layout);
  // Room for the bytes that one encoder segment or one combination keeps, and for a stack's history of so many floats.
  void RequireSaved(int64_t bytes) { saved_bytes_ = std::max(saved_bytes_, bytes); }
  void RequireHistory(int64_t floats) { history_floats_ = std::max(history_floats_, floats); }
  // Call once, after every chunk has stated what it requires.
  void ReserveRequired(ArenaLayout& layout) {
    saved_slice_ = layout.ReserveBytes("decode workspace", saved_bytes_);
    history_slice_ = layout.Reserve<float>("layer history", history_floats_);
  }
  void Bind(const Arena& arena);

  const Workspace& workspace() const { return workspace_; }
  const IncrementalScratch& scratch() const { return scratch_; }
  std::byte* saved() const { return saved_; }
  // Two streams, which a chunk's sublayers write in turns; the input is in the first.
  Matrix stream(int index, int64_t rows) const { return {streams_[index % 2], rows, width_}; }
  // The history of the stack under way, `entries` of `rows` rows on top of each other (layers/layer_combination.h).
  Matrix history(int64_t entries, int64_t rows) const { return {history_, entries * rows, width_}; }

 private:
  int64_t width_, saved_bytes_ = 0, history_floats_ = 0;
  Workspace workspace_;
  IncrementalScratch scratch_;
  ArenaSlice saved_slice_, history_slice_, stream_slices_[2];
  std::byte* saved_ = nullptr;
  float* history_ = nullptr;
  float* streams_[2] = {};
};

class DecoderChunk {
 public:
  // Sublayers [first, last) of the plan. `plan` and `buffers` must outlive the chunk.
  DecoderChunk(const ModelPlan& plan, int32_t first, int32_t last, const DecodeCapacity& capacity, int32_t candidates,
               DecodeBuffers& buffers, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Which borders are crossed. A chunk that takes no part in one of the two has neither input nor work in it.
  bool encode_input() const { return encode_input_; }
  bool encode_output() const { return encode_output_; }
  bool encodes() const { return encode_input_ || first_ == 0; }
  bool step_input() const { return step_input_; }
  bool step_output() const { return step_output_; }
  bool steps() const { return step_input_ || embedding_target_.has_value(); }

  // Where the border's stream must be before Encode or Step, of `rows` rows or, of a combining stack, of its entries of as many.
  Matrix EncodeInput(int64_t rows) const { return Input(encode_history_, rows); }
  Matrix StepInput(int64_t rows) const { return Input(step_history_, rows); }

  // Runs the encoder's part on the sources of context.batch for `lane`. Returns the stream behind the chunk.
  ConstMatrix Encode(const SublayerContext& context, int32_t lane) const;
  // Runs one step of `lane`. Returns the stream behind the chunk; with the head, candidates() then holds the answer.
  ConstMatrix Step(const IncrementalContext& context, int32_t lane);
  const std::optional<CandidateTable>& candidates() const { return candidates_; }

 private:
  struct DecoderSublayer {
    IncrementalSublayer sublayer;
    int32_t cache = 0;  // of caches_
    // Of a stack that combines its layers: what a layer's first sublayer reads, and the entry that its last one writes.
    std::optional<LayerCombination> combination = {};
    int64_t entry = -1;
  };

  void AddEncoderSegments(const ModelPlan& plan, const DecodeCapacity& capacity);
  void AddDecoderSublayers(const ModelPlan& plan, const DecodeCapacity& capacity, ArenaLayout& layout);
  // Of a stack's sublayers [first, last) here, where the stack combines its layers: the entries of its history in front of them. 0 else.
  int64_t AddHistory(const ModelPlan& plan, int32_t first, int32_t last, int64_t rows,
                     std::optional<LayerCombination>& closing);
  Matrix Input(int64_t history_entries, int64_t rows) const {
    return history_entries > 0 ? buffers_.history(history_entries, rows) : buffers_.stream(0, rows);
  }
  // What closes a stack that combines, its history complete. Returns the stream behind it.
  ConstMatrix Close(const LayerCombination& closing, const Stream& stream, const ParameterStore& parameters,
                    int64_t rows) const;
  Matrix CacheOf(const DecoderSublayer& s, int32_t lane) const {
    return Matrix(caches_[s.cache] + lane * cache_rows_ * 2 * d_model_, cache_rows_, 2 * d_model_);
  }

  int32_t first_, last_;
  int64_t d_model_, cache_rows_;
  int32_t lanes_;
  DecodeBuffers& buffers_;
  bool encode_input_ = false, encode_output_ = false, step_input_ = false, step_output_ = false;
  std::optional<TokenEmbedding> embedding_source_, embedding_target_;
  std::vector<Segment> encoder_;
  std::vector<DecoderSublayer> decoder_;
  int64_t encode_history_ = 0, step_history_ = 0;  // entries in front of the chunk; 0: that stack does not combine
  std::optional<LayerCombination> encoder_closing_, decoder_closing_;
  std::optional<CandidateHead> head_;
  std::optional<CandidateTable> candidates_;
  std::vector<ArenaSlice> cache_slices_;
  std::vector<float*> caches_;
};

}  // namespace hadal
