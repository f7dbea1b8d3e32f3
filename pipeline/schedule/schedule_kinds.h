// Declares the parts of the pipeline schedules. An order has its own .cc file with two functions: Make… returns the
// program of one rank, PeakLiveOf… the maximum number of live micro-batches (schedule.h) if a backward ends with its
// weight half. HalvesOf… says which backwards are split and how much later weight halves run (schedule_builder.h). Each
// file begins with the schedule's cost in time and memory. Callers use the table in schedule.cc.
//
// REQUIRES (of all): stages, chunks, micro_batches ≥ 1, 0 ≤ rank < stages; checked by MakeSchedule (schedule.h).
#pragma once

#include <cstdint>

#include "pipeline/schedule/schedule.h"
#include "pipeline/schedule/schedule_builder.h"

namespace hadal {

// schedule_gpipe.cc: all forwards, then all backwards; any number of chunks.
RankProgram MakeGpipeSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves);
int64_t PeakLiveOfGpipe(const ScheduleShape& shape, int rank);
// schedule_1f1b.cc: one forward, one backward.  REQUIRES: shape.chunks = 1.
RankProgram Make1F1BSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves);
int64_t PeakLiveOf1F1B(const ScheduleShape& shape, int rank);
// schedule_interleaved.cc: 1F1B over v chunks per rank; with one chunk it is 1F1B.
RankProgram MakeInterleavedSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves);
int64_t PeakLiveOfInterleaved(const ScheduleShape& shape, int rank);
int64_t WarmUpVisits(const ScheduleShape& shape, int rank);  // with several chunks
// schedule_split.cc: weight halves that follow their sends.
OptionalHalves HalvesOfSplit(const ScheduleShape& shape, int rank);
// schedule_zb.cc: weight halves that wait for idle time.
OptionalHalves HalvesOfZbH1(const ScheduleShape& shape, int rank);
OptionalHalves HalvesOfInterleavedZb(const ScheduleShape& shape, int rank);

}  // namespace hadal
