// Weighted sum on the CPU: rows (backward: blocks of rows) split over threads. Arguments are checked by the caller
// (kernels/weighted_sum.cc).
#pragma once

#include "kernels/weighted_sum.h"

namespace hadal::cpu {

void WeightedSumForward(const Stream& stream, const WeightedSumForwardArgs& args);
void WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args);

}  // namespace hadal::cpu
