// Schedules whose weight halves follow the sends of their input halves: 1f1b_split and interleaved_split.
//
// What an early send gains: on a link, its own time, for every micro-batch. Where links are free, the steady state
// gains nothing: a rank is as early as its busiest neighbour. Only on the way back at a step's end each rank's input
// halves are on the longest path, one after another. So the last visits of rank r are split:
//   S·v - r              with one chunk, or if S divides M; none on the first rank, which ends the step and waits for
//                        no one then (of one chunk its backwards are whole anyway)
//   + (v-1)·(M mod S)    else: the last group is not full, and its visits are part of the way back
// Replays with these and with all backwards split take the same time if ranks take equal time and a weight half takes
// no longer than a forward (schedule_zb_test); with unequal ranks they lie between whole and split backwards. What it
// saves: a whole backward's gradients stay in a cache, those of a weight half are written to memory and read again.
#include <cstdint>

#include "pipeline/schedule/schedule_builder.h"
#include "pipeline/schedule/schedule_kinds.h"

namespace hadal {

OptionalHalves HalvesOfSplit(const ScheduleShape& shape, int rank) {
  if (!shape.free_links) return Halves();
  const int64_t rest = shape.micro_batches % shape.stages;
  if (rank == 0 && rest == 0) return Halves{.last_visits = 0};
  return Halves{.last_visits = shape.global_chunks() - rank + (shape.chunks - 1) * rest};
}

}  // namespace hadal
