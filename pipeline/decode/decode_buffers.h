// The working memory for decoding on one rank. The rank's chunks (ranges of consecutive sublayers) share it, because
// only one chunk computes at a time.
//
//   workspace, scratch, saved   intermediate results of the encoder's and the decoder's sublayers
//   residual                    two tensors of the residual stream: a sublayer reads one and writes the other
//   second                      the second stream of a stack that has one (layers/second_stream.h)
//   history                     the outputs of a stack's earlier layers, for models whose layers read combinations of
//                               them (layers/layer_combination.h)
// Use: the constructor, RequireSaved and RequireHistory (called by the chunks) and ReserveRequired plan the sizes; Bind
// then attaches the memory. A chunk overwrites all contents but its inputs: the residual (or the
// history's entries) and the second stream in front of it.
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layers/chunk_part.h"
#include "layers/incremental_sublayer.h"
#include "pipeline/decode/decode_links.h"
#include "pipeline/layout/decode_capacity.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// DecodeLane stores on one rank the index tables of a decoding lane (one group of sentences in progress,
// decode_driver.h): the sentences that it encodes, the rows of a step, and the cache rows that each row attends to.
//
// The tables are a function of the commands received, so they are equal on every rank. On a device groups and steps are
// padded here to the full capacity, so that each kind of product always has the same shape; the GPU library's order of
// addition depends on the shape. Padding rows read and write only cache row 0.
// Memory: integers only, allocated for the capacity at construction. Thread safety: one thread.
class DecodeLane {
 public:
  DecodeLane(const DecodeCapacity& capacity, bool on_device);

  // Starts a group. `utterances`: for a speech model the frames, [frames · frame_width], of all utterances of the
  // translation; command.source then has, for each row of the encoder (source rows), the index of its utterance. Else
  // empty. REQUIRES: kEncode.
  void BeginGroup(const DecodeCommand& command, std::span<const std::span<const float>> utterances,
                  int32_t frame_width);
  // Starts a step of the group. REQUIRES: kStep.
  void BeginStep(const DecodeCommand& command);

  // The group's sources.
  const PackedBatch& batch() const { return batch_; }
  // The cache rows where the keys and values of the group's sources are written.
  CacheRows encoder_output() const { return {{encoder_rows_.data(), static_cast<int64_t>(encoder_rows_.size())}}; }
  // The step's rows; valid until the next BeginStep.
  const IncrementalRows& rows() const { return rows_; }

 private:
  void AppendFrames(std::span<const float> frames);
  void SetRow(int64_t row, const StepRow& step);
  void FillRow(int64_t row);

  const DecodeCapacity capacity_;
  const bool on_device_;
  int64_t path_stride_, encoder_stride_;
  PackedBatch batch_;
  std::vector<int32_t> tokens_, positions_, cache_rows_;
  std::vector<int32_t> paths_, previous_paths_, path_lengths_;  // [rows · path_stride], [rows]
  std::vector<int32_t> encoder_output_, encoder_lengths_;
  std::vector<int32_t> encoder_rows_;  // [source rows]
  IncrementalRows rows_;
};

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

  // Copy the tables of a lane to its block, in one copy in the stream's order, and set the device addresses in `rows`
  // or `encoder_output`.
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
