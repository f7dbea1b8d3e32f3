// DecodeLane stores on one rank the index tables of a decoding lane (one group of sentences in progress,
// decode_driver.h): the sentences that it encodes, the rows of a step, and the cache rows that each row attends to.
//
// The tables are a function of the commands received, so they are equal on every rank. On a device groups and steps are
// padded here to the full capacity, so that each kind of product always has the same shape; the GPU library's order of
// addition depends on the shape. Padding rows read and write only cache row 0.
// Memory: integers only, allocated for the capacity at construction. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/incremental_sublayer.h"
#include "pipeline/decode/decode_command.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

class DecodeLane {
 public:
  DecodeLane(const DecodeCapacity& capacity, bool on_device);

  // Starts a group. `utterances`: for a speech model the frames, [frames · frame_width], of all utterances of the
  // translation; command.source then has, in each row, the index of the row's utterance. Else empty. REQUIRES: kEncode.
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

}  // namespace hadal
