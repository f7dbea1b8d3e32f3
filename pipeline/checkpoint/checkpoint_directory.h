// Finds a run's checkpoints on disk, and adds new ones. File names: runtime/run_directory.h. An attempt is one start of
// the run's job; its name (NewCheckpointAttempt, run_owner.h) is part of temporary file names.
// Thread safety: any thread may call the functions; a CheckpointCommitter is used by one thread at a time. Only rank 0
// of one attempt, the owner (run_owner.h), may write to a run directory. No call communicates. Blocking: all calls read
// or write files.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/run_owner.h"

namespace hadal {

struct CheckpointEntry {
  int64_t step = 0;
  std::string directory;
};
// Returns the committed checkpoints of a run, damaged ones included, in ascending order of steps; empty if the run has
// no checkpoints directory. Errors: those of files.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& run_directory);

enum class CheckpointPointer { kLatest, kBest };
// Returns the step that RUN/checkpoints/{latest,best} refers to; that checkpoint may have been deleted. Errors:
// NotFound if the link does not exist, DataLoss if its target is not a checkpoint name; those of files.
absl::StatusOr<int64_t> ReadCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer);

struct RejectedCheckpoint {
  std::string directory;
  absl::Status reason;
};
struct FoundCheckpoint {
  CheckpointEntry checkpoint;
  CheckpointManifest manifest;
  std::vector<RejectedCheckpoint> rejected;  // newer, damaged checkpoints, newest first
};
struct FindOptions {
  int64_t before_step = std::numeric_limits<int64_t>::max();  // consider only earlier steps
  bool need_moments = false;                                  // reject weights-only checkpoints
};
// Returns the entry and manifest of an open checkpoint, without `rejected`.
FoundCheckpoint Found(const CheckpointReader& reader);
// Returns the entry and manifest of the checkpoint in `directory`.  Errors: those of CheckpointReader::Open.
absl::StatusOr<FoundCheckpoint> FindNamed(const std::string& directory);
// Opens the newest checkpoint with a valid manifest and correct file sizes; contents are verified when they are read
// (CheckpointReader). Skips only damaged or incomplete checkpoints (IsDamage) and returns them in `rejected`, unless
// that is null. The run may be in progress: if it removes a checkpoint meanwhile, the search starts again.
// Errors: NotFound if the run has no checkpoint; DataLoss, with every directory and reason, if all are damaged; any
// other error of reading a checkpoint, with a remedy.
absl::StatusOr<CheckpointReader> OpenLatest(const std::string& run_directory, const FindOptions& options = {},
                                            std::vector<RejectedCheckpoint>* rejected = nullptr);
// As OpenLatest, but returns the checkpoint's entry and manifest and closes the files.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options = {});

// Returns the run directory if the path, which a user gave, is a run directory or a run's checkpoints folder. Returns
// "" if it is a checkpoint's (it has a manifest, or a checkpoint's name).  Errors: NotFound in all other cases.
absl::StatusOr<std::string> RunOf(const std::string& run_or_checkpoint);
// Whether the checkpoint is in the run's own checkpoints folder, after symbolic links are resolved.
bool IsOfRun(const std::string& checkpoint, const std::string& run_directory);
// Opens the checkpoint that a user named, or the newest one of a run that the user named. Errors: those of RunOf,
// OpenLatest and CheckpointReader.
absl::StatusOr<CheckpointReader> OpenCheckpoint(const std::string& run_or_checkpoint);
// As OpenCheckpoint, but for a run opens its best checkpoint by validation, if that exists.
absl::StatusOr<CheckpointReader> OpenBestCheckpoint(const std::string& run_or_checkpoint);

// Removes leftovers of earlier attempts: from RUN/checkpoints incomplete or partly removed checkpoints, temporary links
// and files; from RUN temporary files of metrics and configuration. Moves back a checkpoint that was moved aside for a
// newer one that never took its place. Renames directories first, so that an attempt that is still running no longer
// writes to the old path.
// `attempt`: the caller's attempt. Errors: the first that occurred; the remaining leftovers are still removed.
absl::Status RemoveLeftovers(const std::string& run_directory, const std::string& attempt);

// Renames the checkpoints after `step` to step_N.abandoned.<attempt>, so that a run that continues from an earlier step
// never loads them. Points `latest` at `step` if that checkpoint exists. Points `best` at the checkpoint that was the
// best when `step` was saved; if that was deleted, removes a `best` that refers to a later step (it would refer to the
// new checkpoint with that number) or to no checkpoint.
// Step −1 renames all checkpoints, for a run that continues from another run's checkpoint.
// Returns the renamed directories.  Errors: Aborted if another attempt owns the run directory; those of files.
absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(const std::string& run_directory, int64_t step,
                                                                  const std::string& attempt);

// Makes the link refer to the checkpoint of `step`, atomically. If a directory has the link's name, because the run was
// copied by a program that follows links, moves the directory to latest.replaced.<attempt>.
absl::Status SetCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer, int64_t step,
                                  const std::string& attempt);

struct RetentionPolicy {
  int64_t keep_last = 0;   // newest checkpoints to keep; 0: all
  int64_t keep_every = 0;  // additionally keep steps that are multiples of this; 0: none
};
// Removes the checkpoints that the policy does not keep, except those that `latest` and `best` refer to, and those of
// the steps in `best`.
// Errors: those of reading the folder and the pointers, and then nothing is removed; else the first removal that
// failed, after all others were tried.
absl::Status ApplyRetention(const std::string& run_directory, const RetentionPolicy& policy,
                            const std::vector<ScoredStep>& best = {});

// A small file stored with a checkpoint, such as a vocabulary.
struct Attachment {
  std::string name;  // a file name without a directory
  std::string contents;
};

// Writes the attachments and, last, the manifest, whose `attachments` it fills in. Then, unless files of the manifest
// lie elsewhere, opens the result with CheckpointReader, as a check, and fsyncs the directory.
// Errors: Internal if the files do not form a checkpoint (missing, wrong size, slices missing); file errors.
absl::Status CompleteCheckpointDirectory(const std::string& directory, CheckpointManifest manifest,
                                         const std::vector<Attachment>& attachments, bool is_whole = true);

struct CheckpointCommitterOptions {
  std::string run_directory;
  std::string attempt;                          // from NewCheckpointAttempt, the same on all ranks
  uint64_t plan_hash = 0;                       // of the model's ModelPlan
  std::vector<CheckpointParameter> parameters;  // DescribeParameters of that plan
  bool muon = false;                            // of that plan
  RetentionPolicy retention;
};

// Rank 0's contents of a checkpoint, besides the ranks' files.
struct CommitRequest {
  TrainingProgress progress;
  std::string config_text;              // the resolved configuration
  std::string model_settings;           // ModelSettingsJson, or empty
  InputKind inputs = {};                // of the training data
  std::vector<WrittenFile> files;       // every rank's
  std::vector<Attachment> attachments;  // with distinct names
  bool is_best = false;                 // also point `best` at it
};

struct CommitResult {
  std::string directory;   // RUN/checkpoints/step_N
  absl::Status retention;  // error of removing old checkpoints; does not fail the commit
};

// CheckpointCommitter adds checkpoints to a run by a two-phase commit.
//
//   every rank   BackgroundFile   its slices → step_N.tmp.<attempt>/rank_R.safetensors, CRC32C while writing, fsync
//   the trainer  gathers every rank's WrittenFile on rank 0 and votes
//   rank 0       Commit           vocabularies · manifest last · opened as a reader would · fsync files and directories
//                                 · rename step_N.tmp.<attempt> → step_N · latest (and best) · retention
//   rank 0       Abandon          instead, when a rank failed: removes the temporary directory
//
// The rename is atomic: readers see either no checkpoint or the complete one. A crash at any time leaves earlier
// checkpoints untouched; the next Claim removes other leftovers. Files with names that hadal does not use belong to the
// user and are never touched.
// Each rank has a CheckpointCommitter; only rank 0's writes links and manifests.
class CheckpointCommitter {
 public:
  explicit CheckpointCommitter(CheckpointCommitterOptions options);

  // Rank 0, once before training: makes this attempt the owner of the run directory until the object is destroyed.
  // `predecessor`: see RunOwnership::Options. Errors: those of RunOwnership::Claim.
  absl::Status Claim(const std::optional<std::string>& predecessor = std::nullopt);
  // Any rank: checks that this attempt is still the owner.  Errors: on rank 0, after Claim, those of
  // RunOwnership::Check; on other ranks those of CheckOwner.
  absl::Status CheckClaim() const;

  // Returns the options of the writer of `rank`'s file of `step`.  REQUIRES: the object outlives the writer.
  CheckpointFileOptions FileOptions(int64_t step, int rank) const;

  // Completes a directory (CompleteCheckpointDirectory) with the manifest of what is saved.
  absl::Status Complete(const CommitRequest& request, const std::string& directory, bool is_whole = true) const;
  // Rank 0, after every rank's file of progress.step is complete. Replaces a checkpoint of the same step.
  // Errors: Aborted if another attempt has claimed the run directory since; Internal if the files do not cover the
  // model exactly once; file errors. After an error the temporary directory is gone and earlier checkpoints are
  // untouched. The claim is checked before the rename and again before the links change. If another attempt claims the
  // directory in between, the new checkpoint may be in place, but the links are unchanged and nothing old is removed.
  absl::StatusOr<CommitResult> Commit(const CommitRequest& request) const;

  // Rank 0: removes the temporary directory of `step`.
  absl::Status Abandon(int64_t step) const;

  // RUN/checkpoints/step_N.tmp.<attempt>.
  std::string TemporaryDirectory(int64_t step) const;

 private:
  // Removes `replaced` (the previous checkpoint of the same step, moved aside; may be empty) and applies the retention
  // policy.
  absl::Status RemoveOld(const std::string& replaced, const std::vector<ScoredStep>& best) const;

  CheckpointCommitterOptions options_;
  std::unique_ptr<RunOwnership> ownership_;  // rank 0's, from Claim on
};

}  // namespace hadal
