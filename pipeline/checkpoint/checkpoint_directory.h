// Where checkpoints lie in a run directory, and how they come and go.
//
//   RUN/checkpoints/step_00001000/            a checkpoint: manifest.json, rank_*.safetensors, vocabularies
//   RUN/checkpoints/step_00001000.tmp.<id>/   being written by attempt <id>; never read
//   RUN/checkpoints/latest, best              relative symbolic links to a checkpoint (text files where no links can
//                                             be)
//   RUN/checkpoints/attempt                   the attempt that may commit here
// Other names are people's own and left alone (checkpoint_leftovers.h).
//
// Thread safety: functions may be called from any thread; writers of one run directory are rank 0 of one attempt.
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
// The step of a name made by CheckpointName; nothing for any other name, those of temporary directories included.
std::optional<int64_t> ParseCheckpointName(const std::string& name);

struct CheckpointEntry {
  int64_t step = 0;
  std::string directory;
};
// The committed checkpoints of a run, valid or not, in ascending order of steps. No checkpoints directory: an empty
// list.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& run_directory);

enum class CheckpointPointer { kLatest, kBest };
// The step that RUN/checkpoints/{latest,best} names; NotFound where there is none, DataLoss where it names something
// else. The directory itself may be gone.
absl::StatusOr<int64_t> ReadCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer);
// Swings the pointer atomically. `unique` makes the temporary name.
absl::Status SetCheckpointPointer(const std::string& run_directory, CheckpointPointer pointer, int64_t step,
                                  const std::string& unique);

struct RetentionPolicy {
  int64_t keep_last = 0;   // newest checkpoints to keep; 0: all
  int64_t keep_every = 0;  // additionally keep steps that are multiples of this; 0: none
};
// Removes what the policy does not keep; never what `latest` or `best` name.
// Errors: the first removal that failed; the others are tried.
absl::Status ApplyRetention(const std::string& run_directory, const RetentionPolicy& policy);

// Renames the checkpoints after `step` to step_N.abandoned.<unique>, so that a run that goes on from an earlier step is
// not overtaken by its own former future, and points `latest` at `step` where there is a checkpoint of it (a run that
// starts over has none). `best` goes back to what was best by then, or away where that is no longer kept: it never
// names a later step, whose number a checkpoint to come would bear. Returns their new directories.
absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(const std::string& run_directory, int64_t step,
                                                                  const std::string& unique);

struct RejectedCheckpoint {
  std::string directory;
  absl::Status reason;
};
struct FoundCheckpoint {
  CheckpointEntry checkpoint;
  std::vector<RejectedCheckpoint> rejected;  // newer ones that did not pass, newest first
};
struct FindOptions {
  // Look only at earlier ones (after a load failed later on).
  int64_t before_step = std::numeric_limits<int64_t>::max();
  bool need_moments = false;  // reject weights-only checkpoints
};
// The newest checkpoint whose manifest and file sizes are good; contents are verified as they are read
// (CheckpointReader). Only what is damaged or not all there is passed over (IsDamage).
// Errors: NotFound when the run has none at all; DataLoss, with every directory and
// its reason, when none passes; what kept a checkpoint from being looked at, with what to try.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options = {});

}  // namespace hadal
