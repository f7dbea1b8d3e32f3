// How subcommands that only read or write files end. For `hadal train` and other subcommands that start ranks see
// launch/job/exit_code.h and error_report.h.
#pragma once

#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/printable.h"

namespace hadal {

inline constexpr int kToolDone = 0, kToolError = 1, kToolUsage = 2, kToolDamaged = 3;

// Maps InvalidArgument and NotFound (what the user named is wrong or missing) to kToolUsage, DataLoss to kToolDamaged,
// other errors to kToolError.
inline int ToolExitCode(const absl::Status& status) {
  if (status.ok()) return kToolDone;
  if (absl::IsDataLoss(status)) return kToolDamaged;
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? kToolUsage : kToolError;
}

// Prints "hadal COMMAND: MESSAGE" on standard error.
inline void PrintToolError(const std::string& command, const absl::Status& status) {
  const std::string message(status.message());
  std::cerr << absl::StrCat("hadal ", command, ": ", PrintableMessage(message), "\n");
}

// Returns the exit code for `status`; prints an error.
inline int EndTool(const std::string& command, const absl::Status& status) {
  if (!status.ok()) PrintToolError(command, status);
  return ToolExitCode(status);
}

}  // namespace hadal
