// Writes a checkpoint that holds weights without Adam's moments. So training cannot resume from it, but a new run can
// start from it (--init-from), and it can be used for translation, scoring and export.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "tools/output/staged_output.h"

namespace hadal {

struct WeightsCheckpoint {
  // The caller sets parameters, plan_hash, progress, config_text and model_settings; WriteWeightsCheckpoint sets the
  // other fields.
  CheckpointManifest manifest;
  std::vector<Attachment> attachments;
  std::string what;  // the word for the work in the progress line: "averaging"
  // Fills state.weight, whose size is the slice's. Called once for every slice, in the order of the parameters.
  std::function<absl::Status(const SliceState& state)> read;
};

// Checks that a slice's weights are finite. `origin`: what they are read from.
// Errors: InvalidArgument with the first element that is not.
absl::Status CheckFinite(const SliceState& state, const std::vector<CheckpointParameter>& parameters,
                         const std::string& origin);

// Begins a folder that must not exist.  Errors: AlreadyExists; StagedOutput::Begin's.
absl::StatusOr<StagedOutput> StageNewFolder(const std::string& folder);

// Writes the checkpoint `directory`. Memory: one slice. REQUIRES: `staged` is StageNewFolder(directory).
// Errors: AlreadyExists; those of `read`, of CheckpointFileWriter and of CompleteCheckpointDirectory.
absl::Status WriteWeightsCheckpoint(WeightsCheckpoint checkpoint, const StagedOutput& staged,
                                    const std::string& directory);

}  // namespace hadal
