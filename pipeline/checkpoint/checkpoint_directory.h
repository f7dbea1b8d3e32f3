// The names of checkpoints in a run directory; lists, finds and removes them.
//
//   RUN/checkpoints/step_00001000/            a checkpoint: manifest.json, rank_*.safetensors, vocabularies
//   RUN/checkpoints/step_00001000.tmp.<id>/   being written by attempt <id>; never read
//   RUN/checkpoints/latest, best              relative symbolic links to a checkpoint (text files where links are not
//                                             possible)
//   RUN/checkpoints/attempt                   the attempt that may commit here
// Other names belong to the user and are left alone (checkpoint_leftovers.h).
//
// Thread safety: any thread may call the functions; only rank 0 of one attempt may write to a run directory.
// Blocking: all do file input and output.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hadal {

// RUN/checkpoints.
std::string CheckpointsDirectory(const std::string& run_directory);
// "step_00001000".  REQUIRES: step ≥ 0.
std::string CheckpointName(int64_t step);
// The step of a name made by CheckpointName; nullopt for any other name, also for a temporary directory's.
std::optional<int64_t> ParseCheckpointName(const std::string& name);

struct CheckpointEntry {
  int64_t step = 0;
  std::string directory;
};
// The committed checkpoints of a run, valid or not, in ascending order of steps. An empty list if there is no
// checkpoints directory.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& run_directory);

enum class CheckpointPointer { kLatest, kBest };
// The step that RUN/checkpoints/{latest,best} names. The checkpoint itself may be gone. Errors: NotFound if the pointer
// does not exist, DataLoss if it names something else.
absl::StatusOr<int64_t> ReadCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer);
// Replaces the pointer atomically. `unique` is part of the temporary name.
absl::Status SetCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer, int64_t step,
                                  const std::string& unique);

struct RetentionPolicy {
  int64_t keep_last = 0;   // newest checkpoints to keep; 0: all
  int64_t keep_every = 0;  // additionally keep steps that are multiples of this; 0: none
};
// Removes the checkpoints that the policy does not keep, but never those that `latest` and `best` name.
// Errors: the first removal that failed; it still tries the others.
absl::Status ApplyRetention(const std::string& run_directory, const RetentionPolicy& policy);

// Renames the checkpoints after `step` to step_N.abandoned.<unique>, so that a run which continues from an earlier step
// never loads the steps it has abandoned. Points `latest` at `step` if that checkpoint exists (a run that starts over
// has none). If `best` names a later step, resets it to the checkpoint that was best at `step`, or removes it if that
// is not kept: a future checkpoint would get the same number. Returns the new directories.
absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(const std::string& run_directory, int64_t step,
                                                                  const std::string& unique);

struct RejectedCheckpoint {
  std::string directory;
  absl::Status reason;
};
struct FoundCheckpoint {
  CheckpointEntry checkpoint;
  std::vector<RejectedCheckpoint> rejected;  // newer ones that were damaged, newest first
};
struct FindOptions {
  int64_t before_step = std::numeric_limits<int64_t>::max();  // consider only earlier ones (after a failed load)
  bool need_moments = false;                                  // reject weights-only checkpoints
};
// The newest checkpoint whose manifest and file sizes are good; contents are verified when they are read
// (CheckpointReader). Skips only checkpoints that are damaged or incomplete (IsDamage).
// Errors: NotFound if the run has no checkpoint; DataLoss, with every directory and its reason, if all are damaged; any
// other error that prevented reading a checkpoint, with what to try.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options = {});

}  // namespace hadal
