// `hadal config` prints the resolved config of a run, the differences of two configs, or the meaning of a field.
//
//   hadal config show FILES… [--set a.b=c]…   the resolved config on standard output, warnings on standard error
//   hadal config diff A B                     the fields that differ; first those that need --accept-changes
//   hadal config explain [FIELD]              comment, type, default, allowed values
// Exit codes: 0 done (with or without differences), 2 bad config or usage.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hadal {

enum class ConfigSchema { kRun, kGrid };  // configs/run.proto, configs/compare.proto

// Returns the text of `hadal config explain FIELD`: comment, type, default, allowed values, and the fields of a
// message. An empty path explains the whole schema. Errors: InvalidArgument with a suggestion for an unknown field.
absl::StatusOr<std::string> ExplainField(absl::string_view path, ConfigSchema schema = ConfigSchema::kRun);

}  // namespace hadal
