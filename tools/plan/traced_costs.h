// What a traced step of a run says of its costs, and how long its schedule really took: what `hadal simulate --run`
// replays.
//
// A chunk's cost is the mean over the step's micro-batches of its forward, and of its backward with the recomputation
// inside. The span reaches from the first forward's begin to the last backward's end, over all ranks; the update behind
// it is not in it. Of a run with replicas the first one is read.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/report/run_record.h"

namespace hadal {

struct TracedCosts {
  int64_t step = 0;
  std::vector<double> forward_seconds;   // [G]
  std::vector<double> backward_seconds;  // [G]
  int micro_batches = 0;                 // of the replica
  double span_seconds = 0;
};

// Of every step in the trace, in order.  Errors: DataLoss when the text is no trace; NotFound when no step is whole.
absl::StatusOr<std::vector<TracedCosts>> CostsFromTrace(const std::string& json, const LayoutRecord& layout);

}  // namespace hadal
