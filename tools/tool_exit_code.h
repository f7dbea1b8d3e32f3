// Exit codes of subcommands that only read or write files. For `hadal train` and other subcommands that start ranks see
// launch/job/exit_code.h.
#pragma once

#include "absl/status/status.h"

namespace hadal {

inline constexpr int kToolDone = 0, kToolError = 1, kToolUsage = 2, kToolDamaged = 3;

// Maps InvalidArgument to kToolUsage, DataLoss to kToolDamaged, other errors to kToolError.
inline int ToolExitCode(const absl::Status& status) {
  if (status.ok()) return kToolDone;
  if (absl::IsDataLoss(status)) return kToolDamaged;
  return absl::IsInvalidArgument(status) ? kToolUsage : kToolError;
}

}  // namespace hadal
