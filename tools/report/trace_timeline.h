// Converts one step of a traced run (tools/output/trace_writer.h) to a timeline of each rank's work.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/timeline.h"

namespace hadal {

struct TracedStep {
  int64_t step = 0;
  double clock_error_seconds = 0;  // the largest RankTrace::clock_error_seconds of the ranks
  // Kinds: forward, recompute, backward, wait, update; one row per rank; time 0 is the step's first event.
  Timeline timeline;
};

// Returns the middle one of the trace's steps. Errors: DataLoss if the text is not a trace, NotFound if it has no step.
absl::StatusOr<TracedStep> TimelineFromTrace(const std::string& json);

}  // namespace hadal
