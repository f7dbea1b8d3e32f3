// A small model's state and checkpoints of it, written in any layout. No ModelPlan: names, shapes and made-up numbers.
#pragma once

#include <limits>

#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"

namespace hadal {

// The parameters: one of several slices (the last one short), matrices, vectors, and one of a single element.
std::vector<CheckpointParameter> SmallParameters();

// Values of all slices, filled from `seed`.
class SmallState {
 public:
  SmallState(std::vector<CheckpointParameter> parameters, uint64_t seed);

  const std::vector<CheckpointParameter>& parameters() const { return parameters_; }
  // Views of every slice, in plan order.
  std::vector<SliceState> Slices();
  // The slices of one of `ranks` ranks: round robin, so that a parameter's slices are on different ranks.
  std::vector<SliceState> SlicesOfRank(int rank, int ranks);
  std::vector<float>& values(int32_t parameter, StateKind kind) {
    return values_[parameter][static_cast<size_t>(kind)];
  }
  void Clear();
  bool operator==(const SmallState& other) const { return values_ == other.values_; }

 private:
  std::vector<CheckpointParameter> parameters_;
  std::vector<std::array<std::vector<float>, kStateKinds.size()>> values_;
};

// A committer that has claimed `run_directory` and removed leftovers of other launches.
CheckpointCommitter SmallCommitter(const std::string& run_directory, const RetentionPolicy& retention = {},
                                   const std::vector<CheckpointParameter>& parameters = SmallParameters());

// The file of one rank at `step`, with these slices.
absl::StatusOr<WrittenFile> WriteRankFile(const CheckpointCommitter& committer, int64_t step, int rank,
                                          std::span<const SliceState> slices);

struct SaveOptions {
  int64_t step = 5;
  int ranks = 3;
  double validation_nll = std::numeric_limits<double>::infinity();
  bool is_best = false;
  std::string validation_metric = "nll";
  std::vector<ScoredStep> best = {};
  std::string config_text = "seed: 7\nname: \"ä \\\"quoted\\\"\"\n";
  std::string vocabulary = std::string("bytes\0\n", 7);
};
// Saves `state` as `ranks` ranks do. Returns Commit's result.
absl::StatusOr<CommitResult> Save(CheckpointCommitter& committer, SmallState& state, const SaveOptions& options = {});

}  // namespace hadal
