// Converts ModelOptions to and from a JSON object, which is stored in checkpoint manifests and with exported models for
// readers in any language.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "layers/model_options.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"

namespace hadal {

// Returns the fields of ModelOptions under their C++ names (layers/model_fields.h); enumerations as strings, numbers
// exactly. Leaves out a default `block` and a negative `mask_token`, so that older versions can read it.
std::string ModelSettingsJson(const ModelOptions& options);

// Inverse of ModelSettingsJson. A field that was added later (FieldAge::kLater, and any of `block`) may be missing;
// it then has its default. The result is valid (ValidateModelOptions).
// Errors: DataLoss, naming the field that is missing, unknown, of the wrong type or out of range.
absl::StatusOr<ModelOptions> ParseModelSettings(const std::string& text);

// Returns the model of the checkpoint with this manifest. `directory`: the checkpoint's, for messages.
// Errors: those of ParseModelSettings; FailedPrecondition if this version makes another model of these settings.
absl::StatusOr<ModelPlan> PlanOfCheckpoint(const CheckpointManifest& manifest, const std::string& directory);

}  // namespace hadal
