// What a command that looks at files and starts no ranks ends the process with; of `hadal train` and its like see
// launch/job/exit_code.h.
#pragma once

#include "absl/status/status.h"

namespace hadal {

inline constexpr int kToolDone = 0, kToolError = 1, kToolUsage = 2, kToolDamaged = 3;

// What was asked for cannot be (InvalidArgument), what is on disk is damaged (DataLoss), or anything else.
inline int ToolExitCode(const absl::Status& status) {
  if (status.ok()) return kToolDone;
  if (absl::IsDataLoss(status)) return kToolDamaged;
  return absl::IsInvalidArgument(status) ? kToolUsage : kToolError;
}

}  // namespace hadal
