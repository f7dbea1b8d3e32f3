// CheckpointWriter writes a checkpoint so that a crash at any moment leaves no bad one behind.
//
//   every rank   WriteRankFile   its slices → step_N.tmp.<attempt>/rank_R.safetensors, CRC32C while writing, fsync
//   the trainer  gathers every rank's WrittenFile (as text) on rank 0 and votes
//   rank 0       Commit          coverage checked · vocabularies · manifest last · fsync files and directories ·
//                                rename step_N.tmp.<attempt> → step_N · latest (and best) · retention
//   rank 0       Abandon         instead, when a rank failed: removes the temporary directory
//
// The rename is atomic: before it a reader sees nothing, after it the complete checkpoint. A failure leaves earlier
// checkpoints untouched.
// Thread safety: an object is used by one thread at a time; each rank has its own. No call communicates. Blocking: all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_state.h"

namespace hadal {

// Makes a name for one launch of a run from time, process and random bits, [0-9a-f-]. Rank 0 calls it and broadcasts
// it.
std::string NewCheckpointAttempt();

struct CheckpointWriterOptions {
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

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointWriterOptions options);

  // Rank 0, once before training: creates RUN/checkpoints and records this attempt as the one that may commit.
  absl::Status Claim();
  // Rank 0, after Claim: removes what earlier attempts left half-written (checkpoint_leftovers.h). A run may ignore its
  // errors.
  absl::Status RemoveLeftovers() const;

  // Any rank: checks that this attempt is still the one that may commit.
  // Errors: Aborted if another attempt has claimed the run directory since; file errors.
  absl::Status CheckClaim() const;

  // Any rank: writes one file with the given slices, in this order, into the temporary directory of `step`, which it
  // creates if necessary. `slices` announces slices and kinds; their values may be moved meanwhile (background_file.h).
  // Therefore it calls `write` with each index of `slices`, in order, and `write` passes the slice with its current
  // views to `append`, which reads them and changes nothing. Memory: a buffer of 1 MiB.
  // REQUIRES: the views have the slices' sizes. Errors: ResourceExhausted (no space; says how much is free),
  // PermissionDenied, NotFound (the directory vanished), …
  using AppendSlice = std::function<absl::Status(const SliceState& slice)>;
  using WriteSlice = std::function<absl::Status(size_t index, const AppendSlice& append)>;
  absl::StatusOr<WrittenFile> WriteRankFile(int64_t step, int rank, std::span<const SliceState> slices,
                                            const WriteSlice& write);

  // Rank 0, after every rank's WriteRankFile of progress.step has succeeded. Replaces a checkpoint of the same step.
  // Errors: Aborted if another attempt has claimed the run directory since; Internal if the files do not cover the
  // model exactly once; file errors. After an error the temporary directory is gone and earlier checkpoints are
  // untouched. The claim is checked before the rename and again before the pointers change. If another attempt claims
  // the directory in between, the new checkpoint may be in place, but the pointers stay and nothing old is removed.
  absl::StatusOr<CommitResult> Commit(const CommitRequest& request);

  // Rank 0: removes the temporary directory of `step`.
  absl::Status Abandon(int64_t step);

  // RUN/checkpoints/step_N.tmp.<attempt>.
  std::string TemporaryDirectory(int64_t step) const;

 private:
  absl::Status PrepareCommit(const CommitRequest& request);
  // Removes `replaced`, the previous checkpoint of the same step that was moved aside (if any), and applies the
  // retention.
  absl::Status RemoveOld(const std::string& replaced);

  CheckpointWriterOptions options_;
};

}  // namespace hadal
