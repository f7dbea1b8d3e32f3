// CPU backend of kernels/cached_attention.h.
#pragma once

#include "kernels/cached_attention.h"

namespace hadal::cpu {

// REQUIRES: as checked by hadal::CachedAttention.
void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);

}  // namespace hadal::cpu
