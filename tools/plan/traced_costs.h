// Computes the costs and the measured time of a run's traced steps, the input of `hadal simulate --run`.
//
// A chunk's cost is the mean over the step's micro-batches of its forward, and of its backward including recomputation.
// The measured time is from the start of the first forward to the end of the last backward over all ranks, without the
// update. With several replicas, only replica 0 is used.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/run_record.h"

namespace hadal {

struct TracedCosts {
  int64_t step = 0;
  std::vector<double> forward_seconds;   // [G]
  std::vector<double> backward_seconds;  // [G]
  int micro_batches = 0;                 // of the replica
  double span_seconds = 0;               // the measured time
};

// Returns the costs of every complete step in order. `trace`: what trace_writer.h writes, an event a line; one event at
// a time is parsed, because a step of 64 ranks has half a million.  Errors: DataLoss if the text is not a trace;
// NotFound if no step is complete.
absl::StatusOr<std::vector<TracedCosts>> CostsFromTrace(const std::string& trace, const LayoutRecord& layout);

}  // namespace hadal
