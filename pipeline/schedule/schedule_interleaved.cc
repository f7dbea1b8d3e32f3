// Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2): each rank holds v chunks of the depth, so
// that the pipeline fills after one chunk's time instead of one stage's. Visits run in the order of schedule_builder.h.
// A rank runs
//   warm_up = 2·(S-1-rank) + (v-1)·S
// forward visits, then alternates one forward and one backward visit. (v-1)·S takes the first group to the last chunk;
// the rest covers the way down to the last rank and back. S = 2, v = 2 (chunks a, b), M = 2, backward twice as long:
//
//   rank 0  F0a F1a F0b F1b .   .   B0b --  .   B1b --  B0a --  B1a --
//   rank 1  .   F0a F1a F0b B0b --  F1b B1b --  B0a --  B1a --  .   .
//
// Idle share of the step with equal chunks, S | M: (S-1)/(v·M + S-1). Memory: at most warm_up + 1 live (chunk,
// micro-batch) pairs on a rank, all chunks together; for M not a multiple of S never more than for M rounded up
// (schedule_builder.h). With one chunk this is 1F1B: nothing returns to rank 0, so the longer warm-up would cost memory
// and gain no time.
#include <algorithm>
#include <utility>

#include "pipeline/schedule/schedule_builder.h"
#include "pipeline/schedule/schedule_kinds.h"

namespace hadal {

int64_t WarmUpVisits(const ScheduleShape& shape, int rank) {
  return 2 * (int64_t{shape.stages} - 1 - rank) + (int64_t{shape.chunks} - 1) * shape.stages;
}

RankProgram MakeInterleavedSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves) {
  if (shape.chunks == 1) return Make1F1BSchedule(shape, rank, halves);
  const int64_t visits = PaddedOrderSize(shape);
  const int64_t warm_up = std::min(visits, WarmUpVisits(shape, rank));
  ProgramBuilder builder(shape, rank, halves);
  for (int64_t i = 0; i < warm_up; ++i) builder.Forward(ForwardAt(shape, i));
  for (int64_t i = warm_up; i < visits; ++i) {
    builder.Forward(ForwardAt(shape, i));
    builder.Backward(BackwardAt(shape, i - warm_up));
  }
  for (int64_t i = visits - warm_up; i < visits; ++i) builder.Backward(BackwardAt(shape, i));
  builder.Tail();
  return std::move(builder).Finish();
}

int64_t PeakLiveOfInterleaved(const ScheduleShape& shape, int rank) {
  if (shape.chunks == 1) return PeakLiveOf1F1B(shape, rank);
  return std::min(int64_t{shape.chunks} * shape.micro_batches, WarmUpVisits(shape, rank) + 1);
}

}  // namespace hadal
