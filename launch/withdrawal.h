// A command among ranks that throws takes its transfers back.
//
// Why it exists: an exception that unwinds a rank would have it wait, at MPI's farewell, for peers that wait for it.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/thrown_error.h"

namespace hadal {

// body(), an absl::Status or StatusOr, or what it throws as its error. Then the communicator's transfers are taken
// back: their buffers are gone.
template <typename Body>
auto CatchErrors(Communicator& communicator, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    communicator.Withdraw();
    return ErrorOfException();
  }
}

}  // namespace hadal
