// CPU backend of kernels/attention.h.
#pragma once

#include "kernels/attention.h"

namespace hadal::cpu {

// REQUIRES: as checked by hadal::AttentionForward and hadal::AttentionBackward.
void AttentionForward(const Stream& stream, const AttentionForwardArgs& args);
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args);

}  // namespace hadal::cpu
