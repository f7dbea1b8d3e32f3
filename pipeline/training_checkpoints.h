// A run's checkpoints, as all ranks of the grid save and load them together.
//
// Saving: every rank writes the slices it owns, the ranks vote, rank 0 commits (checkpoint_writer.h). Loading: rank 0 finds the
// newest good checkpoint, every rank reads its stage's weights and the moments it keeps — whatever layout wrote them — and the
// ranks vote; a checkpoint that any rank refuses is passed over, loudly, for the next older one.
// Threads: one a rank. Blocking: all. Every rank calls each method at the same place.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint.h"
#include "pipeline/stage_state.h"
#include "runtime/comm/collectives.h"

namespace hadal {

struct TrainingCheckpointsOptions {
  std::string run_directory;
  RetentionPolicy retention;
  std::string config_text;                     // the resolved configuration
  std::vector<Attachment> attachments;         // vocabularies
  std::function<void(std::string_view)> warn;  // called on rank 0 with what people must know
};

class TrainingCheckpoints {
 public:
  // `state`, `collectives` (the world's) must outlive the object. `rank`: in the world.
  TrainingCheckpoints(TrainingCheckpointsOptions options, const StageState& state, int rank, Collectives& collectives);

  // Claims the run directory for this attempt, which goes on from `step`; checkpoints of later steps, from a future that is now
  // abandoned, are set aside. Call once before the first Save.
  absl::Status Claim(int64_t step);
  // Saves weights, moments and progress. Returns the directory. Errors leave earlier checkpoints untouched.
  absl::StatusOr<std::string> Save(const TrainingProgress& progress, bool is_best);

  // Loads the newest good checkpoint of the run; nullopt where the run has none.
  // Errors: DataLoss when there are some and none is good.
  absl::StatusOr<std::optional<TrainingProgress>> LoadLatest();
  // Loads one checkpoint directory. `weights_only`: moments stay zero (a new run that starts from these weights).
  absl::StatusOr<TrainingProgress> Load(const std::string& directory, bool weights_only);

 private:
  // What of `slices` is on this rank.
  static std::vector<SliceState> Describe(std::span<const StateSlice> slices, bool weights_only);
  absl::StatusOr<TrainingProgress> LoadHere(const std::string& directory, bool weights_only);
  absl::Status ClaimHere(int64_t step, const std::string& attempt);
  absl::StatusOr<CommitResult> Commit(const std::vector<std::string>& files, CommitRequest request);
  void Warn(std::string_view text) const;

  TrainingCheckpointsOptions options_;
  const StageState& state_;
  int rank_;
  Collectives& collectives_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace hadal
