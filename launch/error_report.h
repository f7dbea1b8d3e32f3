// Reports why a command ended: once if all of its ranks ended for the same reason, else by each rank that has its own
// reason.
//
// A rank can decide this by itself: an error from a vote, or computed from values that all ranks have, is marked as
// common (AsCommonError, runtime/comm/collectives.h), and rank 0 prints it. A rank prints every other error itself, and
// the caller aborts the job, because other ranks may be waiting.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// Prints "hadal COMMAND [RANKS]: MESSAGE" to `out`, for an error of every rank only on rank 0. Returns whether every
// rank has this error; if not, the caller must abort the job. Errors for a lost peer or a passed deadline always count
// as a rank's own.
bool ReportError(const std::string& command, const absl::Status& error, const Communicator& communicator,
                 std::ostream& out);

}  // namespace hadal
