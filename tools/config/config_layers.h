// Whether each of the files that make up a config says something. Files in the wrong order (a size in front of its
// base) are no error, but the first then has no effect: whatever it sets, a later one sets too.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

// A sentence for each file whose every field is set by files behind it, one of them to another value. Empty lists count
// as not set.
// Errors: LoadConfig's.
absl::StatusOr<std::vector<std::string>> LayersWithoutEffect(const std::vector<std::string>& files);

}  // namespace hadal
