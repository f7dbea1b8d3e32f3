// TrainingCheckpoints saves and loads a run's checkpoints on all ranks of the grid together.
//
// Saving overlaps training. Every rank's thread writes the slices it owns (background_file.h). At the ends of steps the
// ranks vote whether all files are complete; then a thread of rank 0 commits (checkpoint_writer.h), and the ranks vote
// whether it has. Writing threads do not communicate. A step waits for them only before its update, for what does not
// fit the buffer.
// Limitation: a rank waits there alone, while the others wait for it in the step's next exchange. With a small buffer
// and a disk slower than their deadline, the run ends as hung.
// Loading: rank 0 finds the newest good checkpoint, every rank reads the weights and moments that it keeps, whichever
// layout wrote them, and the ranks vote. If any rank finds it damaged (DataLoss), rank 0 prints a warning and they try
// the next older one.
// Threads: one per rank. Blocking: all but Begin (Poll takes a vote). Every rank calls each method at the same place.
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
#include "pipeline/stage/stage_state.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"

namespace hadal {

struct TrainingCheckpointsOptions {
  std::string run_directory;
  RetentionPolicy retention;
  std::string config_text;                     // the resolved configuration
  std::vector<Attachment> attachments;         // vocabularies
  std::function<void(std::string_view)> warn;  // called on rank 0 with messages for the user
};

// A checkpoint that has been committed.
struct SavedCheckpoint {
  std::string directory;  // rank 0
  int64_t step = 0;
  double seconds = 0;  // from its beginning to its commit
  // The part of `seconds` in which training waited (before updates, in votes, in Finish), on the slowest rank.
  double stall_seconds = 0;
};

class TrainingCheckpoints {
 public:
  // `state`, `collectives` (the world's) must outlive the object. `rank`: in the world.
  TrainingCheckpoints(TrainingCheckpointsOptions options, const StageState& state, int rank, Collectives& collectives);

  // Claims the run directory for this attempt, which continues from `step`, and sets aside checkpoints of later steps.
  // Call once before the first Begin.
  absl::Status Claim(int64_t step);
  // Starts to save weights, moments and progress as they are now. REQUIRES: not saving().
  void Begin(const TrainingProgress& progress, bool is_best);
  bool saving() const { return saving_; }
  // Call before every update: see BackgroundFile::BeforeUpdate.
  void BeforeUpdate(const Stream& stream);
  // Call at the end of a step while saving: returns the checkpoint once it is committed, nullopt before. After an error
  // the save is over and earlier checkpoints are untouched. REQUIRES: saving().
  absl::StatusOr<std::optional<SavedCheckpoint>> Poll();
  // As Poll, but waits for all ranks' files and the commit, however long the disks take. The ranks vote repeatedly, so
  // that no vote reaches its deadline while a rank still writes. Ends the save.
  absl::StatusOr<SavedCheckpoint> Finish();

  // Loads the newest good checkpoint of the run; nullopt if the run has none.
  // Errors: DataLoss if all checkpoints are damaged; any other error of the checkpoint being tried.
  absl::StatusOr<std::optional<TrainingProgress>> LoadLatest();
  // Loads one checkpoint directory. `weights_only`: moments stay zero (for a new run that starts from these weights).
  absl::StatusOr<TrainingProgress> Load(const std::string& directory, bool weights_only);

 private:
  // The state of `slices` that is on this rank.
  static std::vector<SliceState> Describe(std::span<const StateSlice> slices, bool weights_only);
  absl::StatusOr<TrainingProgress> LoadHere(const std::string& directory, bool weights_only);
  absl::Status ClaimHere(int64_t step, const std::string& attempt);
  // All ranks' files are complete or have failed: rank 0 starts to commit.
  absl::Status BeginCommit();
  // Rank 0's commit has ended: all ranks learn the result.
  absl::StatusOr<SavedCheckpoint> Settle();
  // Ends the save, successful or not: waits for the threads that still write.
  void End();
  void Warn(std::string_view text) const;

  TrainingCheckpointsOptions options_;
  const StageState& state_;
  int rank_;
  Collectives& collectives_;
  std::unique_ptr<CheckpointWriter> writer_;

  // The save in progress: first file_, then, on rank 0, commit_.
  bool saving_ = false;
  std::unique_ptr<BackgroundFile> file_;
  TrainingProgress progress_;
  bool is_best_ = false;
  Stopwatch since_begin_;
  double stall_seconds_ = 0;                          // of this rank
  std::future<absl::StatusOr<CommitResult>> commit_;  // last: its destructor waits for the thread, which uses writer_
};

}  // namespace hadal
