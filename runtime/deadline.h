// The end of a wait, on the monotonic clock: setting the system's clock does not change it.
//
// Thread safety: any thread. Non-blocking.
#pragma once

#include "absl/time/time.h"
#include "runtime/clock.h"

namespace hadal {

class Deadline {
 public:
  explicit Deadline(absl::Duration from_now) : end_seconds_(MonotonicSeconds() + absl::ToDoubleSeconds(from_now)) {}

  // The time left; negative after the deadline.
  absl::Duration Left() const { return absl::Seconds(end_seconds_ - MonotonicSeconds()); }
  bool Passed() const { return Left() <= absl::ZeroDuration(); }

 private:
  double end_seconds_;
};

}  // namespace hadal
