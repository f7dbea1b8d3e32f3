// WithdrawOnException runs a command on a rank and converts an exception to a Status, after it has cancelled the rank's
// pending transfers. After an uncaught exception MPI_Finalize would wait for ever for peers that wait for this rank.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/thrown_error.h"

namespace hadal {

// Returns body(), an absl::Status or StatusOr. If body() throws: withdraws the communicator's transfers, whose buffers
// have been freed, and returns the exception as an error.
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
