// How far a rank's monotonic clock is from rank 0's, by ping-pong.
//
// A rank sends at its time t0, rank 0 answers with its own time s, the answer arrives at t1. If both ways took equally
// long, rank 0's clock read s when the rank's read (t0 + t1) / 2; whatever the ways took, the error of that is at most
// (t1 - t0) / 2. The fastest of several rounds bounds it best (Cristian 1989, "Probabilistic clock synchronization").
//     offset = (t0 + t1) / 2 - s,      local time t is rank 0's t - offset,      error <= (t1 - t0) / 2
// Hosts count from their own boot, so offsets may be days; clocks drift apart by microseconds a second, so whoever
// needs a long span measures at both its ends.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"

namespace hadal {

struct ClockOffset {
  double seconds = 0;        // this rank's clock minus rank 0's
  double error_seconds = 0;  // at most
  double at_seconds = 0;     // this rank's time of the measurement
};

// Every rank calls it at the same place; rank 0 serves the others in turn and its own offset is 0. `clock` reads this
// rank's clock. Blocking, each wait at most `timeout`. Errors: those of Communicator::Wait.
absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& communicator, absl::FunctionRef<double()> clock,
                                               absl::Duration timeout);

}  // namespace hadal
