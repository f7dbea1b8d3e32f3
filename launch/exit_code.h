// The process's exit codes. README.md has the table for users.
#pragma once

#include "absl/status/status.h"

namespace hadal {

enum ExitCode : int {
  kExitDone = 0,
  kExitError = 1,
  kExitUsage = 2,       // bad config or command line: what the user named is missing or wrong
  kExitCheckpoint = 3,  // checkpoint damaged and no fallback; corpus damaged
  kExitDiverged = 4,    // a number is not finite
  kExitHang = 5,        // a wait's deadline passed
  kExitPeerLost = 6,    // another rank ended or cannot be reached
  kExitRequeue = 85,    // saved on a signal; to be requeued
};
inline constexpr int kSignalExit = 128;  // a shell's and mpirun's of what signal n ended: 128 + n

// Returns the exit code for a status.
inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUsage;
    case absl::StatusCode::kDataLoss:
      return kExitCheckpoint;
    case absl::StatusCode::kOutOfRange:
      return kExitDiverged;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitHang;
    case absl::StatusCode::kUnavailable:
      return kExitPeerLost;
    default:
      return kExitError;
  }
}

}  // namespace hadal
