// 1F1B with a flush (Narayanan et al. 2021, "Memory-efficient pipeline-parallel DNN training", section 2.2): a rank
// runs just enough forwards to keep the ranks below it busy, then alternates. Here the computations are listed; the
// builder puts each between its receive and its send (schedule_builder.h). S = 2, M = 3, backward twice as long:
//
//   rank 0  F0 F1 .  .  B0 -- F2 B1 -- .  B2 --
//   rank 1  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .
//
// Idle share of the step with equal stages: (S-1)/(M + S-1), as GPipe's. Memory: min(M, S - rank) live micro-batches.
//
// Sends: a rank sends forward and then receives backward while its neighbour sends backward and then receives forward.
// Were sends to block until received, both would wait for each other (for every S ≥ 2, M ≥ 2). With one outstanding
// send a channel they do not: send i only waits for receive i - 1, which the neighbour reaches before anything that
// needs send i.
#include <algorithm>
#include <utility>

#include "pipeline/schedule/schedule_builder.h"
#include "pipeline/schedule/schedule_kinds.h"
#include "runtime/check.h"

namespace hadal {

RankProgram Make1F1BSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves) {
  HADAL_CHECK_EQ(shape.chunks, 1);
  const int micro_batches = shape.micro_batches;
  const int warm_up = std::min(micro_batches, shape.stages - 1 - rank);
  ProgramBuilder builder(shape, rank, halves);
  for (int i = 0; i < warm_up; ++i) builder.Forward({.micro_batch = i});
  for (int i = warm_up; i < micro_batches; ++i) {
    builder.Forward({.micro_batch = i});
    builder.Backward({.micro_batch = i - warm_up});
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) builder.Backward({.micro_batch = i});
  builder.Tail();
  return std::move(builder).Finish();
}

int64_t PeakLiveOf1F1B(const ScheduleShape& shape, int rank) {
  return std::min(shape.micro_batches, shape.stages - rank);
}

}  // namespace hadal
