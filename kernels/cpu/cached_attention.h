// One decoding step of attention on the CPU: rows are split over threads. kernels/cached_attention.cc checks the
// arguments.
#pragma once

#include "kernels/cached_attention.h"
#include "kernels/scatter_rows.h"

namespace hadal::cpu {

void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);
// Turns the keys that ScatterRows has copied, in the cache.
void TurnScatteredKeys(const ScatterRowsArgs& args);

}  // namespace hadal::cpu
