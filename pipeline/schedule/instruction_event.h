// The trace event (runtime/trace.h) of an instruction of a rank's program.
#pragma once

#include <span>

#include "pipeline/schedule/schedule.h"
#include "runtime/data/packed_batch.h"
#include "runtime/trace.h"

namespace hadal {

// `batches`: the program's micro-batches. `rank`: within its pipeline of `shape`.
TraceEvent EventOf(const Instruction& instruction, const ScheduleShape& shape, int rank,
                   std::span<const PackedBatch> batches);

}  // namespace hadal
