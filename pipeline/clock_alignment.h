// Measures the offset of a rank's monotonic clock from rank 0's, by ping-pong.
//
// A rank sends at its time t0, rank 0 answers with its own time s, and the answer arrives at t1. If both messages took
// equally long, rank 0's clock read s when the rank's read (t0 + t1) / 2. For any message times, the error of that
// estimate is at most (t1 - t0) / 2. The fastest of several rounds gives the best bound (Cristian 1989, "Probabilistic
// clock synchronization").
//     offset = (t0 + t1) / 2 - s,      local time t is rank 0's t - offset,      error <= (t1 - t0) / 2
// Monotonic clocks count from each host's boot, so offsets may be days. Clocks drift apart by microseconds per second,
// so for a long time span measure at both its ends.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"

namespace hadal {

struct ClockOffset {
  double seconds = 0;        // this rank's clock minus rank 0's
  double error_seconds = 0;  // upper bound
  double at_seconds = 0;     // when it was measured, on this rank's clock
};

// Every rank calls it at the same place; rank 0 serves the others in turn, and its own offset is 0. `clock` reads this
// rank's clock. Blocking; each wait takes at most `timeout`. Errors: those of Communicator::Wait.
absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& communicator, absl::FunctionRef<double()> clock,
                                               absl::Duration timeout);

// Returns rank 0's time at this rank's time `t`. The offset at `t` is on the line through two measurements.
double TimeOfRankZero(double t, const ClockOffset& begin, const ClockOffset& end);

}  // namespace hadal
