// `hadal checkpoint ls` and `verify`; and which directory a person means.
// Thread safety: any thread. Blocking: file input.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hadal {

// A checkpoint directory for itself; for a run directory (or its checkpoints folder) the newest checkpoint that opens.
absl::StatusOr<std::string> ResolveCheckpoint(const std::string& run_or_directory);

// One line a checkpoint of a run, damaged ones with the reason; or, for one checkpoint, its progress, files and, with
// `parameters`, names and shapes. Reads manifests only.
absl::Status PrintCheckpoints(const std::string& run_or_directory, bool parameters, std::ostream& out);

// Verifies one checkpoint, or every one of a run; a line each. Errors: DataLoss when any is damaged.
absl::Status VerifyCheckpoints(const std::string& run_or_directory, std::ostream& out);

}  // namespace hadal
