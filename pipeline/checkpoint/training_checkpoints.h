// TrainingCheckpoints saves and loads a run's checkpoints on all ranks of the grid together.
//
//   step N ends   Begin         a thread on each rank starts to write its slices (checkpoint_file.h), while training
//                               continues with steps N + 1 …
//   an update     BeforeUpdate  copies slices that are not yet written to the save buffer
//   step ends     Poll          the ranks vote on whether all files are complete; then a thread on rank 0 commits
//                               (checkpoint_directory.h), and the finished checkpoint is reported to the sink
//   the run ends  SaveAtEnd     waits for a save in progress, saves the last step if it is not saved, and waits for it
//
// Writer threads do not communicate. A step waits for its rank's writer only before its update, if the unwritten slices
// exceed the save buffer.
// Limitation: this wait is local to a rank, while the other ranks wait for it in the step's next collective call. With
// a small buffer and a disk slower than their timeout, the run aborts as if it were stuck.
// A save is finished before the next one begins. If a checkpoint cannot be written, training continues with a warning;
// at the end of a run it is an error.
// Loading: rank 0 chooses a checkpoint and broadcasts its manifest. Every rank reads the weights and moments that it
// stores, whichever pipeline layout wrote them, verifies them by the manifest's checksums, and votes. If any rank finds
// damage (DataLoss), rank 0 warns and all try the next older checkpoint, unless the user has named this one.
// Copies in memory (memory_copies.h) are saves, too: before the commit the hosts exchange files. At the start of a run
// LoadLatest prefers a copy to an older checkpoint.
// Threads: one per rank. Blocking: all methods; Begin only if a save is in progress. All methods are collective: all
// ranks call them in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/loaded_state.h"
#include "pipeline/checkpoint/memory_copies.h"
#include "pipeline/checkpoint/shared_checkpoint.h"
#include "pipeline/checkpoint/vocabulary_growth.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/metrics_sink.h"
#include "runtime/trace.h"

namespace hadal {

struct TrainingCheckpointsOptions {
  std::string run_directory;
  RetentionPolicy retention;
  std::string config_text;              // the resolved configuration
  std::vector<Attachment> attachments;  // vocabularies
  InputKind inputs = {};                // of the training data
  uint64_t seed = 1;                    // of new rows, where a model has more tokens than the checkpoint
  NewRows new_rows = NewRows::kDraw;
  std::function<void(std::string_view)> warn;  // called on rank 0 with messages for the user; may be empty
  std::optional<std::string> predecessor;      // rank 0's: see RunOwnership::Options
  int sight_seconds = 60;                      // in which all hosts must see the claim: file systems may cache for 30
};

// Returns the newest checkpoint of the run before a step, or the one in the directory `copy` unless that is empty.
// Errors: NotFound if there is none.
using FindCheckpoint = std::function<absl::StatusOr<FoundCheckpoint>(int64_t before_step, const std::string& copy)>;

class TrainingCheckpoints {
 public:
  // `rank` and `collectives`: of all ranks. `sink`: on rank 0; null on the others. `trace` and `copies` may be null.
  // Referenced objects must outlive this one.
  TrainingCheckpoints(TrainingCheckpointsOptions options, const StageState& state, int rank, Collectives& collectives,
                      MetricsSink* sink, TraceBuffer* trace, std::unique_ptr<MemoryCopies> copies = nullptr);

  // Claims the run directory for this attempt, which continues from `step`; that step counts as saved. Removes
  // leftovers of earlier attempts and sets aside checkpoints of later steps. On a device, makes the queue of the
  // copies. Must be called before the first Begin. Errors, on all ranks: Aborted if another attempt owns the directory,
  // or has moved or removed the checkpoint that this one has loaded; InvalidArgument if a rank does not see the claim.
  absl::Status Claim(int64_t step);
  // The attempt that owns the run directory; empty before Claim.
  const std::string& attempt() const { return attempt_; }
  // Returns Aborted on rank 0 if this attempt no longer owns the run directory, or if the directory was removed; OK
  // otherwise, also if that cannot be determined. Not collective.
  absl::Status OwnershipLost() const;

  // Starts to save weights, moments and progress as they are now. `is_best`: `best` is to refer to this checkpoint.
  // Errors of Begin, Poll and Finish: Aborted (another job has claimed the run directory); Unavailable and
  // DeadlineExceeded (a rank was lost). After an error the save is over and earlier checkpoints are untouched.
  // now.best lists the steps of the best validations. Begin, Poll and Finish remove from it the step of an earlier save
  // that failed. If the list is then empty, it becomes the list in the last checkpoint that was saved or loaded, so
  // that the next better validation is saved as `best`.
  absl::Status Begin(TrainingProgress& now, bool is_best);
  // Starts a save, or a copy in memory.  REQUIRES: !saving(); copies() for a copy.
  void Start(const TrainingProgress& progress, bool is_best, bool in_memory = false);
  bool saving() const { return saving_; }
  // Call before every update: see BackgroundFile::BeforeUpdate.
  void BeforeUpdate(const Stream& stream);
  // Call at the end of a step.
  absl::Status Poll(TrainingProgress& now) { return Continue(now, /*to_its_end=*/false); }
  // Waits for the save in progress, if any, without a time limit. The ranks vote repeatedly, so that no vote times out
  // while a rank is still writing.
  absl::Status Finish(TrainingProgress& now) { return Continue(now, /*to_its_end=*/true); }
  // Saves this step unless it is already saved with this progress, and waits for completion. Errors: also file errors.
  absl::Status SaveAtEnd(TrainingProgress& now, bool is_best);

  MemoryCopies* copies() { return copies_.get(); }  // null: none are made
  // Rank 0: returns the last checkpoint written by this run, or "".
  const std::string& last_directory() const { return last_directory_; }
  // Returns the time since the last save began, or since Claim.
  double SecondsSinceSave() const { return since_begin_[0].Seconds(); }
  // Whether this state is in a checkpoint: the last one, or that from which the run continued; on every rank.
  bool IsSaved(const TrainingProgress& progress) const {
    return last_step_ == progress.step && (!last_progress_ || *last_progress_ == progress);
  }

  // Loads the newest valid checkpoint of the run; returns nullopt if there is none. `find`, called on rank 0, chooses
  // the checkpoint and may refuse it with an error; the default accepts every checkpoint with moments. If the run's
  // owner removes the checkpoint meanwhile, it is called again.
  // Errors: DataLoss if all checkpoints are damaged; any other error of `find`, or of the checkpoint being tried.
  absl::StatusOr<std::optional<TrainingProgress>> LoadLatest(const FindCheckpoint& find = {});
  bool loaded_copy() const { return loaded_copy_; }  // whether LoadLatest has loaded a copy in memory
  // Loads the checkpoint `chosen` of rank 0; the other ranks' argument is ignored. Errors: rank 0's; InvalidArgument if
  // a rank's host has another checkpoint under that name; those of reading.
  absl::StatusOr<TrainingProgress> Load(absl::StatusOr<FoundCheckpoint> chosen, LoadedState loaded);

 private:
  absl::Status ClaimHere(int64_t step);
  absl::Status AwaitSight();
  // Votes once on the save in progress. Returns true after the commit.  REQUIRES: saving().
  absl::StatusOr<bool> Advance();
  absl::Status Continue(TrainingProgress& now, bool to_its_end);
  absl::Status Await();  // votes until the save is over
  // After all files are complete or have failed: starts the commit, or for a copy in memory the exchange.
  absl::Status EndFiles();
  void BeginCommit();  // on rank 0; for a copy on every rank
  // After the commit: broadcasts the result.
  absl::Status Settle();
  // Ends the save, successful or not: waits for the threads that are still writing.
  void End();
  // Returns an error that ends the run; warns of any other, and notes its step.
  absl::Status WarnIfFailed(int64_t step, const absl::Status& save);
  void ForgetUnsavedBest(TrainingProgress& now) const;
  std::string LastGoodText() const;  // the checkpoint that a restart would load, for messages
  absl::StatusOr<TrainingProgress> LoadShared(const SharedCheckpoint& from, LoadedState loaded);
  absl::Status LoadHere(const SharedCheckpoint& from, LoadedState loaded) const;
  void Warn(std::string_view text) const;

  TrainingCheckpointsOptions options_;
  const StageState& state_;
  int rank_;
  Collectives& collectives_;
  MetricsSink* const sink_;
  TraceBuffer* const trace_;
  std::unique_ptr<CheckpointCommitter> committer_;
  std::unique_ptr<SideQueue> queue_;  // on a device: for the thread's copies; from the first Claim on
  std::string last_directory_;
  int64_t last_step_ = -1;
  std::optional<TrainingProgress> last_progress_;  // as last saved or loaded; absent: a new run's
  std::string loaded_directory_;                   // the checkpoint from which the run continues; empty: none
  bool loaded_elsewhere_ = false;                  // it is not this run's checkpoint of its step
  bool loaded_copy_ = false;                       // it is a copy in memory
  int64_t failed_step_ = 0;                        // of the last save that failed; 0: none has
  std::string attempt_;

  // The save in progress: first file_, then, for a copy, exchanging_, then, on rank 0 or for a copy, commit_.
  bool saving_ = false, in_memory_ = false, exchanging_ = false;
  std::unique_ptr<MemoryCopies> copies_;
  bool copy_failed_ = false;  // ever: the user has been warned
  std::unique_ptr<BackgroundFile> file_;
  std::vector<std::string> files_;  // [ranks] WrittenFile as text, until the commit
  TrainingProgress progress_;
  bool is_best_ = false;
  Stopwatch since_begin_[2];     // [in_memory_]
  double interval_seconds_ = 0;  // from the beginning of the previous save to the beginning of this one
  double stall_seconds_ = 0;     // in which training waited (before updates, in votes), on this rank
  std::future<absl::StatusOr<CommitResult>>
      commit_;  // last: its destructor waits for the thread, which uses committer_
};

}  // namespace hadal
