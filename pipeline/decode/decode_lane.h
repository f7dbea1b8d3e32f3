// DecodeLane keeps one lane's tables on one rank: which sentences it encodes, which rows a step has, and which cache
// rows each of them attends to.
//
// The tables follow from the commands alone, so they are the same on every rank. Groups and steps are padded here. On a
// CPU: to kFewestDecodeRows rows, sources with one-token sentences. On a device: to the capacity, sources with padding
// rows, so that every product of a kind has one shape, by which a device's library chooses its order of addition.
// Padding rows attend only to cache row 0, and write there.
// Memory: integers only, allocated for the capacity at construction. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/incremental_sublayer.h"
#include "pipeline/decode/decode_command.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

class DecodeLane {
 public:
  DecodeLane(const DecodeCapacity& capacity, bool on_device);

  // Starts a group. REQUIRES: kEncode.
  void BeginGroup(const DecodeCommand& command);
  // Starts a step of the group. REQUIRES: kStep.
  void BeginStep(const DecodeCommand& command);

  // The group's sources.
  const PackedBatch& batch() const { return batch_; }
  // The cache rows where the keys and values of the group's sources are written.
  CacheRows encoder_output() const { return {{encoder_rows_.data(), static_cast<int64_t>(encoder_rows_.size())}}; }
  // The step's rows; valid until the next BeginStep.
  const IncrementalRows& rows() const { return rows_; }

 private:
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
