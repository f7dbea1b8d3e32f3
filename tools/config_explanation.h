// What `hadal config explain FIELD` prints: comment, type, default, what is allowed, the fields of a group.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hadal {

// An empty path explains the whole config.
// Errors: InvalidArgument with a suggestion for an unknown field.
absl::StatusOr<std::string> ExplainField(absl::string_view path);

}  // namespace hadal
