// The monotonic clock: seconds since an arbitrary start. For durations, not for dates.
// Thread safety: any thread. Non-blocking; about 25 ns a call.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace hadal {

inline double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Measures a duration: `Stopwatch watch; …; watch.Seconds()`.
class Stopwatch {
 public:
  double Seconds() const { return MonotonicSeconds() - start_; }
  void Restart() { start_ = MonotonicSeconds(); }

 private:
  double start_ = MonotonicSeconds();
};

// The end of a wait, on the monotonic clock: setting the system's clock does not change it.
// Thread safety: any thread. Non-blocking.
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
