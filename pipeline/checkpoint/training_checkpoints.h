// TrainingCheckpoints saves and loads a run's checkpoints on all ranks of the grid together.
//
//   step N ends   Begin         each rank's thread starts to write the slices it owns (checkpoint_file.h); training
//                               continues with the steps N + 1 …
//   an update     BeforeUpdate  what is not yet written is copied to the save buffer
//   step ends     Poll          the ranks vote: all files complete? Then a thread of rank 0 commits
//                               (checkpoint_directory.h); once it has, the checkpoint is reported to the sink
//   the run ends  SaveAtEnd     finishes the save under way, saves the last step if necessary, and waits for that
//
// Writing threads do not communicate. A step waits for them only before its update, for what does not fit the buffer.
// Limitation: a rank waits there alone, while the others wait for it in the step's next exchange. With a small buffer
// and a disk slower than their deadline, the run ends as hung.
// A save is finished before the next one begins. If a checkpoint cannot be written, training continues with a warning;
// at the end of a run it is an error.
// Loading: rank 0 chooses a checkpoint and broadcasts its manifest; every rank reads the weights and moments that it
// keeps, whichever layout wrote them, verifies them by that manifest's checksums, and the ranks vote. If any rank finds
// it damaged (DataLoss), rank 0 prints a warning and they try the next older one, unless the user has named it.
// Threads: one per rank. Blocking: all but Begin where no save is under way (Poll takes a vote). Every rank calls each
// method at the same place.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/metrics_sink.h"
#include "runtime/trace.h"

namespace hadal {

struct TrainingCheckpointsOptions {
  std::string run_directory;
  RetentionPolicy retention;
  std::string config_text;                     // the resolved configuration
  std::vector<Attachment> attachments;         // vocabularies
  std::function<void(std::string_view)> warn;  // called on rank 0 with messages for the user; may be empty
};

// A checkpoint that rank 0 has chosen, as all ranks know it.
struct SharedCheckpoint {
  std::string directory;  // empty: none
  CheckpointManifest manifest;
  std::string host;  // rank 0's
};
// Broadcasts rank 0's choice. Blocking: all ranks call it.  Errors: `chosen`'s on rank 0, on all ranks.
absl::StatusOr<SharedCheckpoint> ShareCheckpoint(absl::StatusOr<FoundCheckpoint> chosen, int rank,
                                                 Collectives& collectives);
// OK if this rank finds the same checkpoint in that directory; half of each would be a model that nobody trained.
// Blocking: reads its manifest.  Errors: InvalidArgument with rank, host and both; CheckpointReader::Open's.
absl::Status CompareWithOwn(const SharedCheckpoint& shared, int rank);

// The newest checkpoint of the run before a step.  Errors: NotFound if there is none.
using FindCheckpoint = std::function<absl::StatusOr<FoundCheckpoint>(int64_t before_step)>;

class TrainingCheckpoints {
 public:
  // `rank`: in the world. `collectives`: the world's. `sink`: rank 0's, null on the others. `trace` may be null.
  // Referenced objects must outlive this one.
  TrainingCheckpoints(TrainingCheckpointsOptions options, const StageState& state, int rank, Collectives& collectives,
                      MetricsSink* sink, TraceBuffer* trace);

  // Claims the run directory for this attempt, which continues from `step`, of which nothing needs saving; removes what
  // killed launches left there, and sets aside checkpoints of later steps. Call before the first Begin.
  absl::Status Claim(int64_t step);

  // Starts to save weights, moments and progress as they are now. Errors of Begin, Poll and Finish: Aborted (another
  // job has claimed the run directory); Unavailable and DeadlineExceeded (a rank was lost). After an error the save is
  // over and earlier checkpoints are untouched.
  absl::Status Begin(const TrainingProgress& progress, bool is_best);
  bool saving() const { return saving_; }
  // Call before every update: see BackgroundFile::BeforeUpdate.
  void BeforeUpdate(const Stream& stream);
  // Call at the end of a step. `step`: the one that warnings name as the present.
  absl::Status Poll(int64_t step);
  // Waits for the save under way, if there is one, however long the disks take. The ranks vote repeatedly, so that no
  // vote reaches its deadline while a rank still writes.
  absl::Status Finish(int64_t step);
  // Saves this step unless it is saved already, and waits for that. Errors: also file errors.
  absl::Status SaveAtEnd(const TrainingProgress& progress, bool is_best);

  // The last checkpoint written by this run, or "" (rank 0).
  const std::string& last_directory() const { return last_directory_; }
  // Its step, or the step that the run continued from; on every rank.
  int64_t last_step() const { return last_step_; }

  // Loads the newest good checkpoint of the run; nullopt if the run has none. `find`, called on rank 0, may refuse it
  // with an error; by default every checkpoint with moments will do.
  // Errors: DataLoss if all checkpoints are damaged; any other error of `find`, or of the checkpoint being tried.
  absl::StatusOr<std::optional<TrainingProgress>> LoadLatest(const FindCheckpoint& find = {});
  // Loads rank 0's `chosen`. `weights_only`: moments stay zero (for a new run that starts from these weights).
  // Errors: rank 0's; InvalidArgument if a rank's host has another checkpoint under that name; those of reading.
  absl::StatusOr<TrainingProgress> Load(absl::StatusOr<FoundCheckpoint> chosen, bool weights_only);

 private:
  absl::Status ClaimHere(int64_t step, const std::string& attempt);
  void Start(const TrainingProgress& progress, bool is_best);
  // One vote on the save under way. Returns whether it is over: committed. REQUIRES: saving().
  absl::StatusOr<bool> Advance();
  absl::Status Await();  // the same until it is over
  // All ranks' files are complete or have failed: rank 0 starts to commit.
  absl::Status BeginCommit();
  // Rank 0's commit has ended: all ranks learn the result.
  absl::Status Settle();
  // Ends the save, successful or not: waits for the threads that still write.
  void End();
  // Returns an error that ends the run; warns of any other.
  absl::Status WarnIfFailed(int64_t step, const absl::Status& save) const;
  std::string LastGoodText() const;  // what the run could go back to
  absl::StatusOr<TrainingProgress> LoadShared(const SharedCheckpoint& from, bool weights_only);
  absl::Status LoadHere(const SharedCheckpoint& from, bool weights_only);
  void Warn(std::string_view text) const;

  TrainingCheckpointsOptions options_;
  const StageState& state_;
  int rank_;
  Collectives& collectives_;
  MetricsSink* const sink_;
  TraceBuffer* const trace_;
  std::unique_ptr<CheckpointCommitter> committer_;
  std::string last_directory_;
  int64_t last_step_ = -1;

  // The save in progress: first file_, then, on rank 0, commit_.
  bool saving_ = false;
  std::unique_ptr<BackgroundFile> file_;
  TrainingProgress progress_;
  bool is_best_ = false;
  Stopwatch since_begin_;
  double interval_seconds_ = 0;  // from the beginning of the previous save to the beginning of this one
  double stall_seconds_ = 0;     // in which training waited (before updates, in votes), on this rank
  std::future<absl::StatusOr<CommitResult>>
      commit_;  // last: its destructor waits for the thread, which uses committer_
};

}  // namespace hadal
