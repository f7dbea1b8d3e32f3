// Attention over packed sentences on the CPU: (sentence, head) pairs are split over threads (attention_work.h).
// kernels/attention.cc checks the arguments.
#pragma once

#include "kernels/attention.h"

namespace hadal::cpu {

void AttentionForward(const Stream& stream, const AttentionForwardArgs& args);
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args);

}  // namespace hadal::cpu
