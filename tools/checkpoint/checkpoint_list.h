// `hadal checkpoint ls` and `verify`. A run may be in progress: checkpoints that it removes meanwhile are no error.
// Thread safety: any thread. Blocking: file input.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace hadal {

// For a run, prints one line per checkpoint, with the reason if it is damaged. For one checkpoint, prints its progress,
// files and, with `parameters`, names and shapes. Reads only manifests.
absl::Status PrintCheckpoints(const std::string& run_or_directory, bool parameters, std::ostream& out);

// Verifies one checkpoint, or all of a run; prints one line each. Errors: DataLoss if any is damaged.
absl::Status VerifyCheckpoints(const std::string& run_or_directory, std::ostream& out);

}  // namespace hadal
