// Replays a schedule with costs: when each compute starts and ends, how long the step takes, how long each rank idles.
//
// Model: a forward, a backward and each of its halves ("computes") take the seconds given for their global chunk. A
// rank's host launches computes one after another, each in gap_seconds. It runs ahead of the device, but launches a
// compute that reads a message only after the message has arrived. Send i of a channel starts when the rank has reached
// it and message i - k has been received (k: outstanding_sends); until then the rank is blocked. A link connects two
// ranks and carries one message at a time in each direction, in the order posted. A message occupies the link for
// held_seconds and arrives latency_seconds after that; if sender and receiver are the same rank, it arrives at once. A
// receive waits for the arrival. Copies and the tail take no time; the caller adds the optimizer's time. The result
// depends only on programs and costs, not on the order of replaying (schedule_run.h): each direction of a link has one
// sender, which sends in its program's order. schedule.h has S, v, M and G (global chunks).
//
// Idle share of a step for equal costs and free transfers (Narayanan et al. 2021, arXiv 2104.04473, sections
// 2.2.1-2.2.2):
//   bubble / makespan = (S-1) / (v·M + S-1)        bubble / compute = (S-1) / (v·M)
// This holds if backwards are whole: for GPipe and 1F1B with v = 1 for every M, and with v > 1 if S divides M.
// Threads: pure. Blocking: none.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

// Cost of a message between two ranks.
struct LinkCost {
  double held_seconds = 0;                           // how long the link can carry nothing else: bytes / bandwidth
  double latency_seconds = 0;                        // from the end of held_seconds until the message arrives
  std::optional<double> backward_held_seconds = {};  // of a message with gradients; nullopt: held_seconds
};

// The weight half's share of a backward without recomputation. The weight half has as many products with weights as the
// forward, but neither attention nor norms.
inline constexpr double kWeightShare = 8.0 / 19.0;

struct ReplayCosts {
  std::vector<double> forward_seconds;   // [G] by global chunk
  std::vector<double> backward_seconds;  // [G] both halves
  std::vector<double> weight_seconds;    // [G] the weight half's part of backward_seconds; empty: kWeightShare of it
  std::vector<LinkCost> links;           // [G - 1] by border; empty: no cost
  double gap_seconds = 0;                // time of the host to launch a forward or backward
};
// The same cost for every global chunk, and free links.
ReplayCosts EqualCosts(const ScheduleShape& shape, double forward_seconds, double backward_seconds);

struct ReplayOptions {
  int outstanding_sends = 1;  // k, messages that a channel may have in flight
  bool forward_only = false;
};

// One forward, backward or half of a backward.
struct ComputeSpan {
  Instruction instruction;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct Replay {
  double makespan_seconds = 0;
  std::vector<double> busy_seconds;             // [S] compute
  std::vector<double> blocked_seconds;          // [S] the part of the idle time spent waiting for a free send buffer
  std::vector<double> link_busy_seconds;        // [2·S] of rank r to the next rank: [2r], to the previous: [2r + 1]
  std::vector<std::vector<ComputeSpan>> spans;  // [S] in order of time

  // Returns the idle share of all ranks' time: 1 − sum(busy_seconds) / (S · makespan_seconds); 0 if no time passes.
  double BubbleFraction() const;
};

// Errors: those of CheckSchedule; InvalidArgument if costs are of other sizes, < 0 or not finite, or weight > backward.
absl::StatusOr<Replay> ReplaySchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                      const ReplayCosts& costs, const ReplayOptions& options);

// The formula at the top (bubble / makespan); nullopt where it does not hold.
std::optional<double> AnalyticBubbleFraction(ScheduleKind kind, const ScheduleShape& shape);

}  // namespace hadal
