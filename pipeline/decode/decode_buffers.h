// The working memory for decoding on one rank. The rank's chunks (ranges of consecutive sublayers) share it, because
// only one chunk computes at a time.
//
//   workspace, scratch, saved   intermediate results of the encoder's and the decoder's sublayers
//   residual                    two tensors of the residual stream: a sublayer reads one and writes the other
//   second                      the second stream of a stack that has one (layers/second_stream.h)
//   history                     the outputs of a stack's earlier layers, for models whose layers read combinations of
//                               them (layers/layer_combination.h)
// Use: the constructor, RequireSaved and RequireHistory (called by the chunks) and ReserveRequired plan the sizes; Bind
// then attaches the memory. Each chunk that computes overwrites all contents.
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "layers/chunk_part.h"
#include "layers/incremental_sublayer.h"
#include "pipeline/layout/decode_capacity.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Returns the capacity that is needed to encode a group of sentences.
ActivationCapacity GroupCapacity(const DecodeCapacity& capacity);

class DecodeBuffers {
 public:
  DecodeBuffers(const ModelPlan& plan, const DecodeCapacity& capacity, const Stream& stream, ArenaLayout& layout);
  // Declare the bytes that one encoder segment or combination saves, and those of a stack's history. The maximum of all
  // calls is reserved.
  void RequireSaved(int64_t bytes) { saved_bytes_ = std::max(saved_bytes_, bytes); }
  void RequireHistory(int64_t bytes) { history_bytes_ = std::max(history_bytes_, bytes); }
  // Call once, after every chunk has stated its requirements.
  void ReserveRequired(ArenaLayout& layout) {
    saved_slice_ = layout.ReserveBytes("decode workspace", saved_bytes_);
    history_slice_ = layout.ReserveBytes("layer history", history_bytes_);
  }
  void Bind(const Arena& arena);

  const Workspace& workspace() const { return workspace_; }
  const IncrementalScratch& scratch() const { return scratch_; }
  std::byte* saved() const { return saved_; }
  // The two residual tensors, index even and odd, which a chunk's sublayers write alternately; index 0 has the chunk's
  // input. `rows`: of all residual streams together.
  AnyMatrix residual(int index, int64_t rows, Storage storage) const {
    return {residuals_[index % 2], rows, width_, storage};
  }
  // The second stream of the current stack.
  Matrix second(int64_t rows) const { return {second_, rows, width_}; }
  // The history of the current stack: `entries` of `rows` rows each, stacked (layers/layer_combination.h).
  AnyMatrix history(int64_t entries, int64_t rows, Storage storage) const {
    return {history_, entries * rows, width_, storage};
  }

 private:
  int64_t width_, saved_bytes_ = 0, history_bytes_ = 0;
  Workspace workspace_;
  IncrementalScratch scratch_;
  ArenaSlice saved_slice_, history_slice_, second_slice_, residual_slices_[2];
  std::byte* saved_ = nullptr;
  std::byte* history_ = nullptr;
  std::byte* residuals_[2] = {};
  float* second_ = nullptr;
};

// DecodeBlocks stores the index tables of decoding in device memory, one block for each lane (decode_driver.h), filled
// before each group of sentences and each step. Blocks have fixed addresses, so one recorded graph serves all groups or
// steps (graph_cache.h).
//
//   a step   tokens, positions and cache rows [R]; cache rows of each hypothesis's path [R, longest path] and of its
//            encoder output [R, longest source], and the lengths of both [R]
//   a group  the cache rows of its sources' rows [source rows]
// R is DecodeCapacity::rows. The copies come from pinned host memory of the same size.
// Thread safety: one thread.
class DecodeBlocks {
 public:
  DecodeBlocks(const DecodeCapacity& capacity, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Copy the tables of a lane to its block, in one copy in the stream's order, and return their addresses.
  // REQUIRES: the tables have the capacity's size; the host has waited for the device since the lane's last call of the
  // same function.
  void FillStep(const Stream& stream, int32_t lane, IncrementalRows& rows) const;
  void FillGroup(const Stream& stream, int32_t lane, CacheRows& encoder_output) const;

 private:
  int64_t rows_, source_rows_, step_words_, group_words_;
  ArenaSlice device_slice_, host_slice_;
  int32_t *on_device_ = nullptr, *on_host_ = nullptr;  // [lanes, step | group]
};

}  // namespace hadal
