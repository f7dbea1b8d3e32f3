// A run's checkpoints, as all ranks of the grid save and load them together.
//
// Saving goes on beside training: every rank's thread writes the slices it owns (background_file.h); at the ends of
// steps the ranks vote whether all files are there; then a thread of rank 0 commits (checkpoint_writer.h), and the
// ranks vote whether it has. Threads that write never talk to other ranks; a step waits for them only before its
// update, for what does not fit the buffer. Loading: rank 0 finds the newest good checkpoint, every rank reads the
// weights and moments it keeps of its stage's — whatever layout wrote them — and the ranks vote; a checkpoint that any
// rank refuses is passed over, loudly, for the next older one.
// Threads: one a rank. Blocking: all. Every rank calls each method at the same place.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/background_file.h"
#include "pipeline/checkpoint/checkpoint.h"
#include "pipeline/stage_state.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"

namespace hadal {

struct TrainingCheckpointsOptions {
  std::string run_directory;
  RetentionPolicy retention;
  std::string config_text;                     // the resolved configuration
  std::vector<Attachment> attachments;         // vocabularies
  std::function<void(std::string_view)> warn;  // called on rank 0 with what people must know
};

// A checkpoint that has been committed.
struct SavedCheckpoint {
  std::string directory;  // rank 0
  int64_t step = 0;
  double seconds = 0;  // from its beginning to its commit
  // Of them, how long training waited, on the rank where it waited longest: before updates, in votes, in Finish.
  double stall_seconds = 0;
};

class TrainingCheckpoints {
 public:
  // `state`, `collectives` (the world's) must outlive the object. `rank`: in the world.
  TrainingCheckpoints(TrainingCheckpointsOptions options, const StageState& state, int rank, Collectives& collectives);

  // Claims the run directory for this attempt, which goes on from `step`; checkpoints of later steps, from a future
  // that is now abandoned, are set aside. Call once before the first Save.
  absl::Status Claim(int64_t step);
  // Begins to save weights, moments and progress as they are now. REQUIRES: not saving().
  void Begin(const TrainingProgress& progress, bool is_best);
  bool saving() const { return saving_; }
  // Before every update: see BackgroundFile::BeforeUpdate.
  void BeforeUpdate(const Stream& stream);
  // At the end of a step while saving: the checkpoint, once it is committed; nullopt before. After an error the save is
  // over and earlier checkpoints are untouched. REQUIRES: saving().
  absl::StatusOr<std::optional<SavedCheckpoint>> Poll();
  // The same, but waits for all ranks; the save is over afterwards.
  absl::StatusOr<SavedCheckpoint> Finish();

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
  // All ranks have written, or failed: rank 0 begins to commit.
  absl::Status BeginCommit();
  // Rank 0 has committed, or failed.
  absl::StatusOr<SavedCheckpoint> Settle();
  // The save is over, well or not: what still writes is waited for.
  void End();
  void Warn(std::string_view text) const;

  TrainingCheckpointsOptions options_;
  const StageState& state_;
  int rank_;
  Collectives& collectives_;
  std::unique_ptr<CheckpointWriter> writer_;

  // The save under way: first file_, then, on rank 0, commit_.
  bool saving_ = false;
  std::unique_ptr<BackgroundFile> file_;
  TrainingProgress progress_;
  bool is_best_ = false;
  Stopwatch since_begin_;
  double stall_seconds_ = 0;                          // of this rank
  std::future<absl::StatusOr<CommitResult>> commit_;  // last: its end waits for the thread, which uses the writer
};

}  // namespace hadal
