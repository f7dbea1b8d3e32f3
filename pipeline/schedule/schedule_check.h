// Proves a schedule correct before the first step, without a device or a communicator, in O(instructions).
//
// Checks, in this order:
//   1. each rank's program (its list of instructions) by itself: every (chunk, micro-batch) receives, computes and
//      sends exactly once in each direction, in ascending micro-batch order; a receive comes before its use, a send
//      after its compute and before the chunk's next compute in that direction (a chunk has one output buffer);
//      backward comes after forward; a channel never has more inputs that are received but not yet used than its
//      receive ring has buffers (`outstanding_sends`); a backward is whole or has both halves (schedule.h); a rank's
//      weight halves run in the order of its input halves, and none is pending at a whole backward; the tail
//      (schedule.h) is complete, in order and last;
//   2. all programs together: no deadlock, by one greedy run (schedule_run.h explains why one run is a proof).
// Result: the peak number of live micro-batches of each chunk and of pending weight halves of each rank, from which
// memory is planned.
// A micro-batch is live on a chunk from its receive (on the first global chunk: its forward) to the end of its
// backward, the weight half included; in a forward-only program to the end of its send (last global chunk: forward).
// Forward and backward both ascend, so micro-batch m can use slot m modulo peak_live. A tensor that only the input half
// reads is live to the end of that half, so it can use slot m modulo peak_input. Input halves and weight halves of a
// rank have the same order, so a rank's n-th pending weight half can use slot n modulo peak_pending.
//
// Call CheckSchedule twice: with outstanding_sends = 1 (rendezvous, the strictest case), and with the run's number.
// Threads: pure. Blocking: none.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

struct ScheduleCheckOptions {
  int outstanding_sends = 1;  // k: sends of a channel posted and not received; also the size of the receive ring
  bool forward_only = false;  // the programs are for validation: no backward, no tail
};

// S ranks, v chunks per rank (ScheduleShape).
struct ScheduleReport {
  std::vector<std::vector<int>> peak_live;   // [S][v] most micro-batches live on the chunk at once
  std::vector<std::vector<int>> peak_input;  // [S][v] most live micro-batches at once whose input half has not ended
  std::vector<int> peak_live_of_rank;        // [S] most live at once on all chunks of a rank, ≤ the sum of peak_live
  std::vector<int> peak_pending;             // [S] most weight halves pending at once on all chunks of a rank
};

// Errors, naming rank, instruction and what was expected:
//   InvalidArgument     malformed: missing, twice, out of order, used before it is received, …
//   ResourceExhausted   a channel holds more inputs than its receive ring
//   FailedPrecondition  deadlock: the cycle of ranks that wait for each other
absl::StatusOr<ScheduleReport> CheckSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                             const ScheduleCheckOptions& options);

}  // namespace hadal
