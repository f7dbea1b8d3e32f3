// Withdraws a rank's transfers if its command throws. Otherwise the exception would unwind the rank into MPI_Finalize,
// where it would wait for peers that wait for it.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/thrown_error.h"

namespace hadal {

// Returns body(), an absl::Status or StatusOr. If body() throws, withdraws the communicator's transfers, whose buffers
// are gone, and returns the exception as an error.
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
