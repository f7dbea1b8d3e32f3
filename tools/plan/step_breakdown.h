// Breaks the time of a pipeline's step down by replaying its schedule four times
// (pipeline/schedule/schedule_replay.h).
//
//   compute    what a rank computes, mean over the ranks
//   host       what it adds that a rank's device waits for its host: after a message, and where the host is slower
//   bubble     idle time of the schedule even with equal chunks and free links: fill and drain
//   imbalance  what chunks of unequal cost and slow ranks add
//   links      what latency and limited links add
// compute + host + bubble + imbalance + links = makespan, exactly, because each part is the difference of two replays.
// A negative part is a gain (unequal chunks can fit a schedule better than equal ones).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule/schedule_replay.h"

namespace hadal {

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

}  // namespace hadal
