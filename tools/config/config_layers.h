// Detects config files without effect. Files in the wrong order (a size before its base) are not an error, but the
// first one then has no effect, because a later file sets all its fields.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

// Returns a sentence for each file whose fields are all set by later files, at least one to another value. Empty lists
// count as not set.
// Errors: LoadConfig's.
absl::StatusOr<std::vector<std::string>> LayersWithoutEffect(const std::vector<std::string>& files);

}  // namespace hadal
