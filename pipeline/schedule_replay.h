// Replays a schedule with costs: when each compute would start and end, how long the step takes, how long each rank
// idles.
//
// Model: forward and backward take their global chunk's seconds; send i of a channel starts when the rank reaches it
// and message i - k has been received (k = outstanding sends: a full ring blocks). Its data then take the link from the
// sender to the receiver, which carries one message at a time in each direction, in the order they were posted, and is
// held for held_seconds a message; they arrive latency_seconds later. Where sender and receiver are the
// same rank they arrive at once. A receive waits for the arrival. Copies and the tail take no time: whoever plans a
// step adds the optimizer's. Times depend on the programs and costs alone, not on the order of replaying
// (schedule_run.h): a link has one sender, whose order of sends is its program's.
//
// Idle share of a step for equal costs and free transfers (Narayanan et al. 2021, arXiv 2104.04473,
// sections 2.2.1-2.2.2):
//   bubble / makespan = (S-1) / (v·M + S-1)        bubble / compute = (S-1) / (v·M)
// GPipe and 1F1B with v = 1: for every M. With v > 1: where S divides M; otherwise only the replay knows.
// Threads: pure. Blocking: none.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule.h"

namespace hadal {

// What a message between two ranks costs.
struct LinkCost {
  double held_seconds = 0;     // the link carries nothing else meanwhile: bytes / bandwidth
  double latency_seconds = 0;  // from then until the message is there
};

struct ReplayCosts {
  std::vector<double> forward_seconds;   // [G] by global chunk
  std::vector<double> backward_seconds;  // [G]
  std::vector<LinkCost> links;           // [G - 1] by border, both directions alike; empty: free
};
// The same costs for every global chunk, and free links.
ReplayCosts EqualCosts(const ScheduleShape& shape, double forward_seconds, double backward_seconds);

struct ReplayOptions {
  int outstanding_sends = 1;
  bool forward_only = false;
};

// One forward or backward.
struct ComputeSpan {
  Instruction instruction;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct Replay {
  double makespan_seconds = 0;
  std::vector<double> busy_seconds;             // [S] compute
  std::vector<double> blocked_seconds;          // [S] of the idle time, waiting for a free place to send from
  std::vector<double> link_busy_seconds;        // [2·S] a rank's link to the next rank, and to the one before it
  std::vector<std::vector<ComputeSpan>> spans;  // [S] in order of time

  // Idle share of all ranks' time, 0 … 1.
  double BubbleFraction() const;
};

// Errors: CheckSchedule's; InvalidArgument when costs are not G finite numbers ≥ 0, or links neither G - 1 nor none.
absl::StatusOr<Replay> ReplaySchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                      const ReplayCosts& costs, const ReplayOptions& options);

// The formula above, as share of the makespan; nullopt where it does not hold.
std::optional<double> AnalyticBubbleFraction(ScheduleKind kind, const ScheduleShape& shape);

}  // namespace hadal
