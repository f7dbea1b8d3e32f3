// Finds problems with the GPUs of a set of ranks: missing on some ranks, shared, of different models, slow; an old
// driver; NCCL missing or with unusual settings.
// Threads: pure.
#pragma once

#include "tools/doctor/rank_comparison.h"

namespace hadal {

// Adds its findings to `comparison`; none if no rank requested a GPU.
void CompareGpus(RankComparison& comparison);

}  // namespace hadal
