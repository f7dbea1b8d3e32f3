// One lane's tables on one rank: which sentences it encodes, which rows a step has, and which cache rows each of them sees.
//
// Follows the commands alone, so that every rank holds the same tables. Groups and steps are filled up to
// kFewestDecodeRows rows here: sources with one-token sentences, steps with rows that see nothing but cache row 0.
// Memory: integers only, sized for the capacity at construction. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/incremental_sublayer.h"
#include "pipeline/decode_command.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

class DecodeLane {
 public:
  explicit DecodeLane(const DecodeCapacity& capacity);

  // A group starts. REQUIRES: kEncode.
  void BeginGroup(const DecodeCommand& command);
  // A step of it starts. REQUIRES: kStep.
  void BeginStep(const DecodeCommand& command);

  // The group's sources.
  const PackedBatch& batch() const { return batch_; }
  // The step's rows; valid until the next BeginStep.
  const IncrementalRows& rows() const { return rows_; }

 private:
  void SetRow(int64_t row, const StepRow& step, bool first);
  void FillRow(int64_t row);

  int64_t path_stride_, memory_stride_;
  PackedBatch batch_;
  std::vector<int32_t> tokens_, positions_, cache_rows_;
  std::vector<int32_t> paths_, previous_paths_, path_lengths_;  // [rows · path_stride], [rows]
  std::vector<int32_t> memory_, memory_lengths_;
  IncrementalRows rows_;
};

}  // namespace hadal
