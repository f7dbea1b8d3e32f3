// A run's trace (pipeline/step_tracer.h) as a Chrome trace: a JSON file that https://ui.perfetto.dev and
// chrome://tracing open.
//
// One process a rank, and in it these tracks: step, compute (forward; backward with the recomputations inside it),
// waits, sends, receives, update (tied gradients, norm, optimizer, tied weights), checkpoint (with validation). A
// message is an arrow from its send to its receive, and a bar "in flight" (an asynchronous event of the receiver) from
// the end of its send to its arrival. A wait is a receive whose message had not come when it was reached; the drain of
// the sends at a step's end is one too. Replicas' gradients are bars of their owner, from when its own were complete
// until all were added. Times are microseconds since the first event, on rank 0's clock; "otherData" has the greatest
// clock error and what was dropped.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/step_tracer.h"

namespace hadal {

// Steps chosen on a command line: "steps=100-102" or "steps=100".
struct TraceSteps {
  int64_t first = 0, last = -1;
};
// Errors: InvalidArgument.
absl::StatusOr<TraceSteps> ParseTraceSteps(const std::string& text);

std::string TraceToJson(const RunTrace& trace);

// Writes RUN/trace/steps_100-102.json and returns the path. Errors: those of files.h.
absl::StatusOr<std::string> WriteTraceJson(const RunTrace& trace, const std::string& run_directory);

}  // namespace hadal
