// Until when a wait may last, on the monotonic clock: a clock that is set during the wait neither ends nor prolongs it.
//
// Threads: safe. Non-blocking.
#pragma once

#include "absl/time/time.h"
#include "runtime/clock.h"

namespace hadal {

class Deadline {
 public:
  explicit Deadline(absl::Duration from_now) : end_seconds_(MonotonicSeconds() + absl::ToDoubleSeconds(from_now)) {}

  // What is left of it; negative once it has passed.
  absl::Duration Left() const { return absl::Seconds(end_seconds_ - MonotonicSeconds()); }
  bool Passed() const { return Left() <= absl::ZeroDuration(); }

 private:
  double end_seconds_;
};

}  // namespace hadal
