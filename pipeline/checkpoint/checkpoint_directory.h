// Finds a run's checkpoints on disk. File names: runtime/run_directory.h; checkpoint_commit.h adds new ones.
//
// Thread safety: any thread may call the functions. No call communicates. Blocking: all do file input and output.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_reader.h"

namespace hadal {

struct CheckpointEntry {
  int64_t step = 0;
  std::string directory;
};
// Returns the committed checkpoints of a run, valid or not, in ascending order of steps; empty without a checkpoints
// directory.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& run_directory);

enum class CheckpointPointer { kLatest, kBest };
std::string CheckpointPointerPath(const std::string& run_directory, CheckpointPointer pointer);
// Returns the step that RUN/checkpoints/{latest,best} refers to; that checkpoint may have been deleted. Errors:
// NotFound if the link does not exist, DataLoss if its target is not a checkpoint name.
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
// Describes an open checkpoint; `rejected` is empty.
FoundCheckpoint Found(const CheckpointReader& reader);
// Returns the checkpoint in `directory`; `rejected` is empty.  Errors: those of CheckpointReader::Open.
absl::StatusOr<FoundCheckpoint> FindNamed(const std::string& directory);
// Opens the newest checkpoint with a valid manifest and correct file sizes; contents are verified when they are read
// (CheckpointReader). Skips only damaged or incomplete checkpoints (IsDamage) and returns them in `rejected` (may be
// null). The run may be in progress: starts again where it has removed a checkpoint meanwhile.
// Errors: NotFound if the run has no checkpoint; DataLoss, with every directory and reason, if all are damaged; any
// other error of reading a checkpoint, with a remedy.
absl::StatusOr<CheckpointReader> OpenLatest(const std::string& run_directory, const FindOptions& options = {},
                                            std::vector<RejectedCheckpoint>* rejected = nullptr);
// As OpenLatest, but closes it.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& run_directory, const FindOptions& options = {});

// Returns the run directory for a path that a user gave: the run's own, or its checkpoints folder's; "" if the path is
// that of a checkpoint (has a manifest, or a checkpoint's name).  Errors: NotFound if it is neither.
absl::StatusOr<std::string> RunOf(const std::string& run_or_checkpoint);
// Whether the checkpoint is in the run's own checkpoints folder, links followed.
bool IsOfRun(const std::string& checkpoint, const std::string& run_directory);
// Opens what a user named: a checkpoint, or a run's newest.  Errors: those of RunOf, OpenLatest and CheckpointReader.
absl::StatusOr<CheckpointReader> OpenCheckpoint(const std::string& run_or_checkpoint);
// As OpenCheckpoint, but of a run its best by validation, if that is there.
absl::StatusOr<CheckpointReader> OpenBestCheckpoint(const std::string& run_or_checkpoint);

}  // namespace hadal
