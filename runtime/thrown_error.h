// What was thrown, as an error with words: hadal's own code throws nothing, but memory can run out and threads can be refused anywhere.
//
// Why it exists: an exception that nobody catches ends a rank with a core and without a word; on a thread of its own nobody can catch it but
// that thread.
#pragma once

#include "absl/status/status.h"

namespace hadal {

// The exception under way.  REQUIRES: called in a handler.
// ResourceExhausted: no memory, or threads and the like that the system refuses; else Internal, with its own words.
absl::Status ErrorOfException();

// body(), an absl::Status or StatusOr, or what it throws as its error.
template <typename Body>
auto CatchErrors(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return ErrorOfException();
  }
}

}  // namespace hadal
