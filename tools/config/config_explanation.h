// The text of `hadal config explain FIELD`: comment, type, default, allowed values, and the fields of a group.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hadal {

enum class ConfigSchema { kRun, kGrid };

// An empty path explains the whole config of a run, or the whole grid of runs.
// Errors: InvalidArgument with a suggestion for an unknown field.
absl::StatusOr<std::string> ExplainField(absl::string_view path, ConfigSchema schema = ConfigSchema::kRun);

}  // namespace hadal
