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
  // Room for what one encoder segment keeps.
  void RequireSaved(int64_t floats) { saved_floats_ = std::max(saved_floats_, floats); }
  // Call once, after every chunk has stated what it requires.
  void ReserveSaved(ArenaLayout& layout) { saved_slice_ = layout.Reserve<float>("decode workspace", saved_floats_); }
  void Bind(const Arena& arena);

  const Workspace& workspace() const { return workspace_; }
  const IncrementalScratch& scratch() const { return scratch_; }
  float* saved() const { return saved_; }
  // Two streams, which a chunk's sublayers write in turns; the input is in the first.
  Matrix stream(int index, int64_t rows) const { return {streams_[index % 2], rows, width_}; }

 private:
  int64_t width_, saved_floats_ = 0;
  Workspace workspace_;
  IncrementalScratch scratch_;
  ArenaSlice saved_slice_, stream_slices_[2];
  float* saved_ = nullptr;
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

  // Where the border's stream must be before Encode or Step, of `rows` rows.
  Matrix Input(int64_t rows) const { return buffers_.stream(0, rows); }

  // Runs the encoder's part on the sources of context.batch for `lane`. Returns the stream behind the chunk.
  ConstMatrix Encode(const SublayerContext& context, int32_t lane) const;
  // Runs one step of `lane`. Returns the stream behind the chunk; with the head, candidates() then holds the answer.
  ConstMatrix Step(const IncrementalContext& context, int32_t lane);
  const std::optional<CandidateTable>& candidates() const { return candidates_; }

 private:
  struct DecoderSublayer {
    IncrementalSublayer sublayer;
    int32_t cache = 0;  // of caches_
  };

  void AddDecoderSublayers(const ModelPlan& plan, ArenaLayout& layout);
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
  std::optional<CandidateHead> head_;
  std::optional<CandidateTable> candidates_;
  std::vector<ArenaSlice> cache_slices_;
  std::vector<float*> caches_;
};

}  // namespace hadal
