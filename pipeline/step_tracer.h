// StepTracer traces chosen steps of a run. It turns every rank's TraceBuffer on and off, gathers the events on rank 0,
// and converts their times to rank 0's clock.
//
//   StepTracer tracer(request, communicator, engine.trace(), timeout);      all ranks
//   while (…) { tracer.BeforeStep(step);  …step, validation, checkpoint…  tracer.AfterStep(step); }
// Clock offsets are measured before the first and after the last traced step; in between they are interpolated
// linearly.
// For other steps both calls do nothing. Collecting costs two messages per rank (size and events) after the last traced
// step, outside every step's time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"
#include "runtime/trace.h"

namespace hadal {

struct ClockOffset {
  double seconds = 0;        // this rank's clock minus rank 0's
  double error_seconds = 0;  // upper bound of the error of `seconds`
  double at_seconds = 0;     // when it was measured, on this rank's clock
};

// Measures the offset of a rank's monotonic clock from rank 0's, by ping-pong.
//
// A rank sends at its time t0, rank 0 answers with its own time s, and the answer arrives at t1. If both messages took
// equally long, rank 0's clock showed s when the rank's showed (t0 + t1) / 2. For any message times, the error of that
// estimate is at most (t1 - t0) / 2. The fastest of several rounds gives the best bound (Cristian 1989, "Probabilistic
// clock synchronization").
//     offset = (t0 + t1) / 2 - s,      local time t is rank 0's t - offset,      error <= (t1 - t0) / 2
// Monotonic clocks count from each host's boot, so offsets may be days. Clocks drift apart by microseconds per second,
// so for a long time span measure at both its ends.
// Every rank must call MeasureClockOffset at the same point of the program; rank 0 answers the others one after
// another, and its own offset is 0. `clock` reads this rank's clock, in seconds. Blocking; each wait takes at most
// `timeout`. Errors: those of Communicator::Wait.
absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& communicator, absl::FunctionRef<double()> clock,
                                               absl::Duration timeout);

// Returns rank 0's time at this rank's time `t`. The offset at `t` is on the line through two measurements.
double TimeOfRankZero(double t, const ClockOffset& begin, const ClockOffset& end);

struct RankTrace {
  std::string host;
  double clock_error_seconds = 0;  // bound of the error of the events' times, if the clocks drift linearly
  int64_t dropped = 0;             // events that did not fit into the buffer
  std::vector<TraceEvent> events;  // with times of rank 0's clock, ordered by end
};

struct RunTrace {
  int64_t first_step = 0, last_step = 0;
  std::vector<RankTrace> ranks;
};

struct TraceRequest {
  int64_t first_step = 0, last_step = -1;  // inclusive; no steps if last < first
  // Called on rank 0 with the collected trace. The function itself reports its errors; they do not end the run.
  std::function<void(const RunTrace&)> write;

  bool wanted() const { return last_step >= first_step; }
};

class StepTracer {
 public:
  // Reserves memory in `trace` if the request has steps. References must outlive the tracer.
  StepTracer(TraceRequest request, Communicator& communicator, TraceBuffer& trace, absl::Duration timeout);

  // Every rank calls them around each step, its validation and checkpoint included. Blocking: BeforeStep of the first
  // traced step, AfterStep of the last. Errors: those of Communicator::Wait; Internal.
  absl::Status BeforeStep(int64_t step);
  absl::Status AfterStep(int64_t step);
  // Every rank calls it at the end of the run. If the run ends before the last step to be traced, collects the events.
  absl::Status Finish();
  bool missed() const { return request_.wanted() && first_ == 0; }  // whether the run had no step to be traced

 private:
  absl::Status Collect();
  std::string Pack(const ClockOffset& end) const;

  TraceRequest request_;
  Communicator& communicator_;
  TraceBuffer& trace_;
  absl::Duration timeout_;
  bool open_ = false;  // between the first BeforeStep and Collect
  int64_t first_ = 0, last_ = 0;
  ClockOffset begin_;
};

}  // namespace hadal
