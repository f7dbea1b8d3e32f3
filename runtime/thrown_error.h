// Converts exceptions to absl::Status. hadal's own code does not throw, but allocations and thread starts may throw
// anywhere. An uncaught exception would end a rank with a core dump and no message.
#pragma once

#include "absl/status/status.h"

namespace hadal {

// Converts the current exception to absl::Status: ResourceExhausted if memory or threads ran out, else Internal with
// the exception's text. REQUIRES: called in a catch block.
absl::Status ErrorOfException();

// Returns the result of body(), an absl::Status or StatusOr; if body throws, returns ErrorOfException().
template <typename Body>
auto CatchExceptions(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return ErrorOfException();
  }
}

}  // namespace hadal
