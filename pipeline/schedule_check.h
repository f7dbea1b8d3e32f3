// The checker: proves a schedule right before the first step, with no device and no communicator, in O(instructions).
//
// What is checked, in this order:
//   1. each rank's program by itself: every (chunk, micro-batch) receives, computes and sends exactly once in each
//      direction, in ascending micro-batch order; a receive comes before its use, a send after its compute and before
//      the chunk's next compute in that direction (a chunk has one output buffer); backward comes after forward;
//      received and unused inputs of a channel never exceed the receive ring (`outstanding_sends`); the tail is
//      complete, in order and last;
//   2. all programs together: no deadlock, by one greedy run (schedule_run.h says why one run is a proof).
// What is found: how many micro-batches each chunk holds at once, from which its memory is planned.
// A micro-batch is live on a chunk from its receive (first global chunk: its forward) to the end of its backward;
// forward-only: to the end of its send (last global chunk: of its forward). Since forward and backward both ascend,
// micro-batch m can live in slot m modulo peak_live.
//
// Run it twice: with outstanding_sends = 1, the strictest machine (rendezvous), and with the plan's number.
// Threads: pure. Blocking: none.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule.h"

namespace hadal {

struct ScheduleCheckOptions {
  int outstanding_sends = 1;  // k: sends a channel may have posted and not received; also the receive ring
  bool forward_only = false;  // a validation program: no backward, no tail
};

struct ScheduleReport {
  std::vector<std::vector<int>> peak_live;  // [S][v] most micro-batches live on the chunk at once
  std::vector<int> peak_live_of_rank;  // [S] most live at once on all of a rank's chunks together, ≤ the sum above
};

// Errors, naming rank, instruction and what was expected:
//   InvalidArgument     malformed: missing, twice, out of order, used before it is received, …
//   ResourceExhausted   a channel holds more inputs than its receive ring
//   FailedPrecondition  deadlock: the cycle of ranks that wait for each other
absl::StatusOr<ScheduleReport> CheckSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                             const ScheduleCheckOptions& options);

}  // namespace hadal
