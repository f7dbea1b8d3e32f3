// What is wrong with the GPUs of a set of ranks: none where others have one, shared, unlike, slow; an old driver; no
// NCCL; settings of NCCL.
// Threads: pure.
#pragma once

#include "tools/doctor/rank_comparison.h"

namespace hadal {

// Adds what it finds. Nothing where no rank has looked for a GPU.
void CompareGpus(RankComparison& comparison);

}  // namespace hadal
