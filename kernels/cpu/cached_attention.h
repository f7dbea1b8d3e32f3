// One decoding step of attention on the CPU: rows are split over threads. kernels/cached_attention.cc checks the
// arguments.
#pragma once

#include "kernels/cached_attention.h"

namespace hadal::cpu {

void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);

}  // namespace hadal::cpu
