// A model's settings as a JSON object. It is stored in a checkpoint's manifest and beside an exported model, for
// readers in any language.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "layers/model_options.h"

namespace hadal {

// The fields of ModelOptions under their own names; enumerations as words. Numbers are exact.
std::string ModelSettingsJson(const ModelOptions& options);

// The inverse of ModelSettingsJson; the result has passed ValidateModelOptions.
// Errors: DataLoss naming the field that is missing, unknown, of the wrong type or out of range.
absl::StatusOr<ModelOptions> ParseModelSettings(const std::string& text);

}  // namespace hadal
