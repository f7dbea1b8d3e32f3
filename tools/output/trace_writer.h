// Writes a run's trace (pipeline/step_tracer.h) as a Chrome trace: a JSON file for https://ui.perfetto.dev and
// chrome://tracing.
//
// Each rank is a process with these tracks: step, compute (forward; backward with its recomputations inside), waits,
// sends, receives, update (tied gradients, norm, optimizer, tied weights), checkpoint (with validation). A message is
// an arrow from its send to its receive, and a bar "in flight" (an asynchronous event of the receiver) from the end
// of its send to its arrival. A wait is a receive whose message had not arrived when the rank reached it; the slice
// of the receive itself begins when the message was sent, because Perfetto from version 52 on reverses an arrow whose
// last slice began before its first. Waiting for outstanding sends at the end of a step is also a wait. The reduction
// of a bucket over replicas is a bar of its owner, from the time the owner's gradients were complete until all were
// added. Times are microseconds since the first event, on rank 0's clock; "otherData" has the largest clock error and
// the number of dropped events.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "pipeline/step_tracer.h"

namespace hadal {

// Steps [first, last] of --trace, counted from 1: "steps=100-102" or "steps=100". By default none.
struct TraceSteps {
  int64_t first = 0, last = -1;
};
// Errors: InvalidArgument.
absl::StatusOr<TraceSteps> ParseTraceSteps(const std::string& text);

std::string TraceToJson(const RunTrace& trace);

// Writes RUN/trace/steps_100-102.json and returns the path. Errors: those of files.h.
absl::StatusOr<std::string> WriteTraceJson(const RunTrace& trace, const std::string& run_directory);

}  // namespace hadal
