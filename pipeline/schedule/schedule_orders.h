// The parts of the pipeline schedules, for the table in schedule.cc. Make… returns the program of one rank. HalvesOf…
// says which backwards are split and how much later weight halves run.
// REQUIRES (of all): stages, chunks, micro_batches ≥ 1, 0 ≤ rank < stages; checked by MakeSchedule (schedule.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "pipeline/schedule/schedule.h"

namespace hadal {

// Which of a rank's backwards are in halves, and how many weight halves may stay pending (`lag`): after each input half
// and its send, the oldest pending weight halves run until only `lag` are left; those run after the rank's last
// backward, before the update. A visit is the forward or backward of one micro-batch in one chunk. Weight
// halves change neither the order of the other instructions nor what these wait for, so they cause no deadlock.
struct Halves {
  int64_t lag = 0;
  int64_t last_visits = std::numeric_limits<int64_t>::max();  // only so many of the rank's last backwards are in halves
};
using OptionalHalves = std::optional<Halves>;  // nullopt: all backwards are whole

// All forwards, then all backwards; any number of chunks.
RankProgram MakeGpipeSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves);
// One forward, one backward.  REQUIRES: shape.chunks = 1.
RankProgram Make1F1BSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves);
// 1F1B over v chunks per rank; with one chunk it is 1F1B.
RankProgram MakeInterleavedSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves);
// Weight halves that follow their sends.
OptionalHalves HalvesOfSplit(const ScheduleShape& shape, int rank);
// Weight halves that wait for idle time.
OptionalHalves HalvesOfZbH1(const ScheduleShape& shape, int rank);
OptionalHalves HalvesOfInterleavedZb(const ScheduleShape& shape, int rank);
// Forwards alone, of every chunk.
RankProgram MakeForwardOrder(const ScheduleShape& shape, int rank);

}  // namespace hadal
