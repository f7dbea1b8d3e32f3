// Exit codes of subcommands that only read or write files. For `hadal train` and other subcommands that start ranks see
// launch/exit_code.h and error_report.h.
#pragma once

#include <iostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"

namespace hadal {

inline constexpr int kToolDone = 0, kToolError = 1, kToolUsage = 2, kToolDamaged = 3;  // damaged: a corpus, checkpoint

// The message of a status whose error was already printed, by a child of this process: nothing is printed again.
inline constexpr char kPrinted[] = "";

// Maps InvalidArgument, NotFound, AlreadyExists and FailedPrecondition (what the user named is wrong, missing, there
// already or of the wrong kind) to kToolUsage, DataLoss to kToolDamaged, other errors to kToolError.
inline int ToolExitCode(const absl::Status& status) {
  if (status.ok()) return kToolDone;
  if (absl::IsDataLoss(status)) return kToolDamaged;
  const bool usage = absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsAlreadyExists(status) ||
                     absl::IsFailedPrecondition(status);
  return usage ? kToolUsage : kToolError;
}

// Returns the status of a child that ended with one of the codes above. `message`: what to print besides the child's.
inline absl::Status ToolStatus(int exit_code, const std::string& message = kPrinted) {
  if (exit_code == kToolDone) return absl::OkStatus();
  if (exit_code == kToolUsage) return InvalidArgumentError(message);
  return exit_code == kToolDamaged ? DataLossError(message) : InternalError(message);
}

// Prints "hadal COMMAND: MESSAGE" on standard error.
inline void PrintToolError(const std::string& command, const absl::Status& status) {
  const std::string message(status.message());
  std::cerr << absl::StrCat("hadal ", command, ": ", PrintableMessage(message), "\n");
}

// Returns the exit code for `status`; prints an error, unless a child has. `command`: with its subcommand, as typed
// ("checkpoint ls").
inline int EndTool(const std::string& command, const absl::Status& status) {
  if (!status.ok() && status.message() != kPrinted) PrintToolError(command, status);
  return ToolExitCode(status);
}

// As above; prints *text on standard output if it is OK.
inline int EndTool(const std::string& command, const absl::StatusOr<std::string>& text) {
  if (text.ok()) std::cout << *text << std::flush;
  return EndTool(command, text.status());
}

}  // namespace hadal
