// The process's exit codes, one place: README.md has the table for people.
#pragma once

#include "absl/status/status.h"

namespace hadal {

enum ExitCode : int {
  kExitDone = 0,
  kExitError = 1,
  kExitUsage = 2,       // bad config or command line
  kExitCheckpoint = 3,  // checkpoint corrupt and no fallback; a corpus that is damaged
  kExitDiverged = 4,    // not finite
  kExitHang = 5,        // a wait's deadline passed
  kExitPeerLost = 6,
  kExitRequeue = 85,  // saved on a signal: start me again
};

// The code that a status ends the process with.
inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
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
