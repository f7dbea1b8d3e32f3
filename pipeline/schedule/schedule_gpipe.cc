// GPipe (Huang et al. 2019, section 2.2): all micro-batches forward, then all backward. S = 2, M = 3, backward twice as
// long:
//
//   rank 0  F0 F1 F2 .  .  .  B0 -- B1 -- B2 --
//   rank 1  .  F0 F1 F2 B0 -- B1 -- B2 -- .  .
//
// Backward runs in ascending order like every schedule here (the paper's picture runs it in descending order; time and
// memory are the same). Idle share of the step with equal stages: (S-1)/(v·M + S-1). Memory: all M micro-batches live
// on every chunk.
//
// No deadlock with one outstanding send: while ranks run forward, data only flows to higher (chunk, micro-batch) visits
// in an order all ranks share; a send waits for a receive that comes earlier in that order. The same holds backward,
// and no forward waits for a backward.
#include <utility>

#include "pipeline/schedule/schedule_builder.h"
#include "pipeline/schedule/schedule_kinds.h"

namespace hadal {

RankProgram MakeGpipeSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves) {
  ProgramBuilder builder(shape, rank, halves);
  const int64_t visits = PaddedOrderSize(shape);
  for (int64_t i = 0; i < visits; ++i) builder.Forward(ForwardAt(shape, i));
  for (int64_t i = 0; i < visits; ++i) builder.Backward(BackwardAt(shape, i));
  builder.Tail();
  return std::move(builder).Finish();
}

int64_t PeakLiveOfGpipe(const ScheduleShape& shape, int /*rank*/) {
  return int64_t{shape.chunks} * shape.micro_batches;
}

}  // namespace hadal
