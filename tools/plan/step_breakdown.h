// Breaks the time of a pipeline's step down by replaying its schedule four times
// (pipeline/schedule/schedule_replay.h).
//
//   compute    what a rank computes, mean over the ranks
//   host       what the wait of a rank's device for its host adds: after each message, and where launching a kernel
//              takes the host longer than computing it takes the device
//   bubble     idle time of the schedule even with equal chunks and free links: fill and drain
//   imbalance  what chunks of unequal cost and slow ranks add
//   links      what latency and limited links add
// compute + host + bubble + imbalance + links = makespan, exactly: each replay adds one cost, and its
// part is what that adds to the makespan of the replay before it, the first one's to `compute`.
// A negative part is a gain (unequal chunks can fit a schedule better than equal ones).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule/schedule_replay.h"

namespace hadal {

struct LayoutRecord;

struct StepBreakdown {
  double compute_seconds = 0;
  double host_seconds = 0;
  double bubble_seconds = 0;
  double imbalance_seconds = 0;
  double link_seconds = 0;

  double makespan_seconds() const {
    return compute_seconds + host_seconds + bubble_seconds + imbalance_seconds + link_seconds;
  }
};

struct BrokenDownReplay {
  Replay replay;  // with all costs
  StepBreakdown breakdown;
};

// Errors: ReplaySchedule's.
absl::StatusOr<BrokenDownReplay> BreakDownStep(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                               const ReplayCosts& costs, const ReplayOptions& options);

// Computes the costs and the measured time of a run's traced steps, the input of `hadal simulate --run`.
//
// A chunk's cost is the mean over the step's micro-batches of its forward, and of its backward including recomputation.
// The measured time is from the start of the first forward to the end of the last backward over all ranks, without the
// update. With several replicas, only replica 0 is used.
// Threads: pure.
struct TracedCosts {
  int64_t step = 0;
  std::vector<double> forward_seconds;   // [chunks of the whole depth]
  std::vector<double> backward_seconds;  // the same
  int micro_batches = 0;                 // of the replica
  double span_seconds = 0;               // the measured time
};

// Returns the costs of every complete step in order. `trace`: what trace_writer.h writes, an event a line; one event at
// a time is parsed, because a step of 64 ranks has half a million.  Errors: DataLoss if the text is not a trace;
// NotFound if no step is complete.
absl::StatusOr<std::vector<TracedCosts>> CostsFromTrace(const std::string& trace, const LayoutRecord& layout);

}  // namespace hadal
