// What an instruction of a rank's program is in a trace (runtime/trace.h).
#pragma once

#include <span>

#include "pipeline/schedule.h"
#include "runtime/data/packed_batch.h"
#include "runtime/trace.h"

namespace hadal {

// `batches`: what the program's micro-batches are. `rank`: within its pipeline of `shape`.
TraceEvent EventOf(const Instruction& instruction, const ScheduleShape& shape, int rank,
                   std::span<const PackedBatch> batches);

}  // namespace hadal
