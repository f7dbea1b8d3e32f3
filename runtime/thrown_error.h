// An exception as an error with words. hadal's own code throws nothing, but memory can run out and threads can be
// refused anywhere.
//
// Why it exists: an exception that nobody catches ends a rank with a core dump and without a message, and only the
// thread itself can catch its exceptions.
#pragma once

#include "absl/status/status.h"

namespace hadal {

// The current exception as an error. REQUIRES: called in a handler.
// ResourceExhausted: no memory, or the system refuses threads and the like; else Internal, with the exception's text.
absl::Status ErrorOfException();

// Returns what body() returns, an absl::Status or StatusOr, or the error of what it throws.
template <typename Body>
auto CatchExceptions(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return ErrorOfException();
  }
}

}  // namespace hadal
