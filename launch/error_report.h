// Reports why a command ended: once if all of its ranks have the same reason, else by each rank that has its own.
//
// A rank can determine this alone: an error from a vote, or computed from values that all ranks have, is marked as
// common (AsCommonError, runtime/comm/collectives.h), and rank 0 prints it. A rank prints every other error itself, and
// the caller aborts the job, because other ranks may be waiting.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/thrown_error.h"

namespace hadal {

// Prints "hadal COMMAND [RANKS]: MESSAGE" to `out`, for an error of every rank only on rank 0. Returns whether every
// rank has this error; if not, the caller must abort the job. Errors for a lost peer or a passed deadline always count
// as a rank's own.
bool ReportError(const std::string& command, const absl::Status& error, const Communicator& communicator,
                 std::ostream& out);

// Returns body(), an absl::Status or StatusOr. If body() throws: withdraws the communicator's transfers, whose buffers
// have been freed, and returns the exception as an error. After an uncaught exception MPI_Finalize would wait for ever
// for peers that wait for this rank.
template <typename Body>
auto WithdrawOnException(Communicator& communicator, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    communicator.Withdraw();
    return ErrorOfException();
  }
}

}  // namespace hadal
