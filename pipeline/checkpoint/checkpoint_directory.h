// A run's checkpoints on disk: which there are, and the two-phase commit that adds one. Names: runtime/run_directory.h.
//
//   every rank   BackgroundFile   its slices → step_N.tmp.<attempt>/rank_R.safetensors, CRC32C while writing, fsync
//   the trainer  gathers every rank's WrittenFile on rank 0 and votes
//   rank 0       Commit           vocabularies · manifest last · opened as a reader would · fsync files and directories
//                                 · rename step_N.tmp.<attempt> → step_N · latest (and best) · retention
//   rank 0       Abandon          instead, when a rank failed: removes the temporary directory
//
// The rename is atomic: before it a reader sees nothing, after it the complete checkpoint. A crash at any moment leaves
// earlier checkpoints untouched; what else it leaves, the next Claim removes. Names that are not a run's belong to the
// user and are left alone.
//
// Thread safety: any thread may call the functions; a CheckpointCommitter is used by one thread at a time. Only rank 0
// of one attempt may write to a run directory. No call communicates. Blocking: all do file input and output.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"

namespace hadal {

// ---- Reading (checkpoint_directory.cc) ----

struct CheckpointEntry {
  int64_t step = 0;
  std::string directory;
};
// The committed checkpoints of a run, valid or not, in ascending order of steps. An empty list if there is no
// checkpoints directory.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& run_directory);

enum class CheckpointPointer { kLatest, kBest };
std::string CheckpointPointerPath(const std::string& run_directory, CheckpointPointer pointer);
// The step that RUN/checkpoints/{latest,best} names. The checkpoint itself may be gone. Errors: NotFound if the pointer
// does not exist, DataLoss if it names something else.
absl::StatusOr<int64_t> ReadCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer);

struct RejectedCheckpoint {
  std::string directory;
  absl::Status reason;
};
struct FoundCheckpoint {
  CheckpointEntry checkpoint;
  CheckpointManifest manifest;
  std::vector<RejectedCheckpoint> rejected;  // newer ones that were damaged, newest first
};
struct FindOptions {
  int64_t before_step = std::numeric_limits<int64_t>::max();  // consider only earlier ones (after a failed load)
  bool need_moments = false;                                  // reject weights-only checkpoints
};
// The checkpoint in `directory`, with none rejected.  Errors: CheckpointReader::Open's.
absl::StatusOr<FoundCheckpoint> FindNamed(const std::string& directory);
// The newest checkpoint whose manifest and file sizes are good; contents are verified when they are read
// (CheckpointReader). Skips only checkpoints that are damaged or incomplete (IsDamage).
// Errors: NotFound if the run has no checkpoint; DataLoss, with every directory and its reason, if all are damaged; any
// other error that prevented reading a checkpoint, with what to try.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options = {});

// ---- Writing (checkpoint_commit.cc) ----

// Makes a name for one launch of a run from time, process and random bits. Rank 0 calls it and broadcasts it.
std::string NewCheckpointAttempt();

// Removes what killed launches have left in RUN/checkpoints: half-written and half-removed checkpoints, and temporary
// links and files. A checkpoint that was moved aside is moved back if the newer one did not take its place. Directories
// are renamed first, so that a launch that is still alive no longer writes to the old path.
// `attempt`: the caller's. Errors: the first one; it still removes the rest.
absl::Status RemoveLeftovers(const std::string& run_directory, const std::string& attempt);

// Renames the checkpoints after `step` to step_N.abandoned.<attempt>, so that a run that continues from an earlier step
// never loads the steps it has abandoned. Points `latest` at `step` if that checkpoint exists (a run that starts over
// has none). If `best` names a later step, resets it to the checkpoint that was best at `step`, or removes it if that
// is not kept: a future checkpoint would get the same number. Returns the new directories.
absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(const std::string& run_directory, int64_t step,
                                                                  const std::string& attempt);

// Replaces the pointer atomically. `attempt` is part of the temporary name.
absl::Status SetCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer, int64_t step,
                                  const std::string& attempt);

struct RetentionPolicy {
  int64_t keep_last = 0;   // newest checkpoints to keep; 0: all
  int64_t keep_every = 0;  // additionally keep steps that are multiples of this; 0: none
};
// Removes the checkpoints that the policy does not keep, but never those that `latest` and `best` name.
// Errors: the first removal that failed; it still tries the others.
absl::Status ApplyRetention(const std::string& run_directory, const RetentionPolicy& policy);

// A small file stored with a checkpoint: a vocabulary's contents() under a plain file name.
struct Attachment {
  std::string name;
  std::string contents;
};

// Writes the attachments and, last, the manifest (filling in its `attachments`), opens the result as a reader would,
// and fsyncs.
// Errors: Internal if the files do not form a checkpoint (missing, wrong size, slices missing); file errors.
absl::Status CompleteCheckpointDirectory(const std::string& directory, CheckpointManifest manifest,
                                         const std::vector<Attachment>& attachments);

struct CheckpointCommitterOptions {
  std::string run_directory;
  std::string attempt;  // from NewCheckpointAttempt, the same on all ranks
  uint64_t plan_hash = 0;
  std::vector<CheckpointParameter> parameters;
  RetentionPolicy retention;
};

// What rank 0 adds to the ranks' files.
struct CommitRequest {
  TrainingProgress progress;
  std::string config_text;
  std::string model_settings;           // ModelSettingsJson, or empty
  std::vector<WrittenFile> files;       // every rank's
  std::vector<Attachment> attachments;  // with distinct names
  bool is_best = false;                 // also point `best` at it
};

struct CommitResult {
  std::string directory;   // RUN/checkpoints/step_N
  absl::Status retention;  // failing to remove old checkpoints does not fail a commit
};

// One attempt's right to save into a run directory. Each rank has its own object; rank 0's writes.
class CheckpointCommitter {
 public:
  explicit CheckpointCommitter(CheckpointCommitterOptions options);

  // Rank 0, once before training: creates RUN/checkpoints and records this attempt as the one that may commit.
  absl::Status Claim();
  // Any rank: checks that this attempt is still the one that may commit.
  // Errors: Aborted if another attempt has claimed the run directory since; file errors.
  absl::Status CheckClaim() const;

  // Where `rank` writes its file of `step`.  REQUIRES: the object outlives the writer.
  CheckpointFileOptions FileOptions(int64_t step, int rank) const;

  // Rank 0, after every rank's file of progress.step is complete. Replaces a checkpoint of the same step.
  // Errors: Aborted if another attempt has claimed the run directory since; Internal if the files do not cover the
  // model exactly once; file errors. After an error the temporary directory is gone and earlier checkpoints are
  // untouched. The claim is checked before the rename and again before the pointers change. If another attempt claims
  // the directory in between, the new checkpoint may be in place, but the pointers stay and nothing old is removed.
  absl::StatusOr<CommitResult> Commit(const CommitRequest& request) const;

  // Rank 0: removes the temporary directory of `step`.
  absl::Status Abandon(int64_t step) const;

  // RUN/checkpoints/step_N.tmp.<attempt>.
  std::string TemporaryDirectory(int64_t step) const;

 private:
  absl::Status Complete(const CommitRequest& request) const;
  // Removes `replaced`, the previous checkpoint of the same step that was moved aside (if any), and applies the
  // retention.
  absl::Status RemoveOld(const std::string& replaced) const;

  CheckpointCommitterOptions options_;
};

}  // namespace hadal
