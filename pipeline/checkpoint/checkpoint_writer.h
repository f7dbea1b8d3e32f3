// Writing a checkpoint so that no moment of a crash leaves a bad one behind.
//
//   every rank   WriteRankFile   its slices → step_N.tmp.<attempt>/rank_R.safetensors, CRC32C while writing, fsync
//   the trainer  gathers every rank's WrittenFile (as text) on rank 0 and votes
//   rank 0       Commit          coverage checked · vocabularies · manifest last · fsync files and directories ·
//                                rename step_N.tmp.<attempt> → step_N · latest (and best) · retention
//   rank 0       Abandon         instead, when a rank failed: removes the temporary directory
//
// Until the rename a reader sees nothing; after it everything. A failure leaves earlier checkpoints untouched.
// Thread safety: one thread at a time an object; ranks use objects of their own. No call communicates. Blocking: all.
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

// A name for one launch of a run: time, process and random bits, [0-9a-f-]. Rank 0 makes it and broadcasts it.
std::string NewCheckpointAttempt();

struct CheckpointWriterOptions {
  std::string run_directory;
  std::string attempt;  // from NewCheckpointAttempt, the same on all ranks
  uint64_t plan_hash = 0;
  std::vector<CheckpointParameter> parameters;
  RetentionPolicy retention;
};

// What rank 0 adds to the files.
struct CommitRequest {
  TrainingProgress progress;
  std::string config_text;
  std::string model_settings;           // ModelSettingsJson, or empty
  std::vector<WrittenFile> files;       // every rank's
  std::vector<Attachment> attachments;  // of different names
  bool is_best = false;                 // also swing `best` here
};

struct CommitResult {
  std::string directory;   // RUN/checkpoints/step_N
  absl::Status retention;  // failed tidying does not fail a commit
};

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointWriterOptions options);

  // Rank 0, once, before training: makes RUN/checkpoints and names this attempt the one that may commit.
  absl::Status Claim();
  // Rank 0, after that: removes what earlier attempts left half-written (checkpoint_leftovers.h). No run need end with
  // its errors.
  absl::Status RemoveLeftovers() const;

  // Any rank: whether this attempt is still the one that may commit.
  // Errors: Aborted when another attempt claimed the run directory since; those of files.
  absl::Status CheckClaim() const;

  // Any rank: writes one file with the given slices, in the given order, into the temporary directory of `step` (made
  // if it is not there). `slices` says which there are, and of what kinds; their values may move meanwhile
  // (background_file.h), so `write` is called with each index of `slices`, in order, and passes the slice, as it is at
  // that moment, on to `append`, which reads its views and changes nothing. Memory: a buffer of 1 MiB.
  // REQUIRES: sizes of the views are those of the slices. Errors: ResourceExhausted (no space; says what is free),
  // PermissionDenied, NotFound (directory vanished), …
  using AppendSlice = std::function<absl::Status(const SliceState& slice)>;
  using WriteSlice = std::function<absl::Status(size_t index, const AppendSlice& append)>;
  absl::StatusOr<WrittenFile> WriteRankFile(int64_t step, int rank, std::span<const SliceState> slices,
                                            const WriteSlice& write);

  // Rank 0, after every rank's WriteRankFile of progress.step succeeded. Replaces a checkpoint of the same step.
  // Errors: Aborted when another attempt claimed the run directory since; Internal when the files do not cover the
  // model exactly once; those of files. After an error the temporary directory is gone and earlier checkpoints are
  // untouched. The claim is looked at before every move: where another attempt makes it in the middle, the new
  // checkpoint may be in its place, but pointers stay and nothing old is removed.
  absl::StatusOr<CommitResult> Commit(const CommitRequest& request);

  // Rank 0: removes the temporary directory of `step`.
  absl::Status Abandon(int64_t step);

  // RUN/checkpoints/step_N.tmp.<attempt>.
  std::string TemporaryDirectory(int64_t step) const;

 private:
  absl::Status PrepareCommit(const CommitRequest& request);
  // `replaced`: the checkpoint of the same step that has stepped aside, if there was one.
  absl::Status RemoveOld(const std::string& replaced);

  CheckpointWriterOptions options_;
};

}  // namespace hadal
