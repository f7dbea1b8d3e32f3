// What was thrown, as an error with words: hadal's own code throws nothing, but memory can run out and threads can be refused anywhere.
//
// Why it exists: an exception that nobody catches ends a rank with a core and without a word, and one that unwinds a rank would have it wait,
// at MPI's farewell, for peers that wait for it.
#pragma once

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// The exception under way.  REQUIRES: called in a handler.
// ResourceExhausted: no memory, or threads and the like that the system refuses; else Internal, with its own words.
absl::Status ErrorOfException();

// body(), an absl::Status or StatusOr, or what it throws as its error. Then the communicator's transfers are taken back: their buffers are gone.
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
