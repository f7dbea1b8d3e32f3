// Writes a checkpoint that holds weights without Adam's moments. So training cannot resume from it, but a new run can
// start from it (--init-from), and it can be used for translation, scoring and export.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"

namespace hadal {

struct WeightsCheckpoint {
  // parameters, plan_hash, progress, config_text and model_settings; the other fields are filled in.
  CheckpointManifest manifest;
  std::vector<Attachment> attachments;
  std::string what;  // of the progress line: "averaging"
  // Fills state.weight, whose size is the slice's. Called once for every slice, in the order of the parameters.
  std::function<absl::Status(const SliceState& state)> read;
};

// Checks that a slice's weights are finite. `origin`: what they are read from.
// Errors: InvalidArgument with the first element that is not.
absl::Status CheckFinite(const SliceState& state, const std::vector<CheckpointParameter>& parameters,
                         const std::string& origin);

// Writes `directory`, which must not exist and appears whole or not at all, also on TERM, INT and HUP. Memory: one
// slice.
// Errors: AlreadyExists; those of `read`, of CheckpointFileWriter and of CompleteCheckpointDirectory.
absl::Status WriteWeightsCheckpoint(WeightsCheckpoint checkpoint, const std::string& directory);

}  // namespace hadal
