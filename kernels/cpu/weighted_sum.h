// Weighted sum on the CPU: rows (backward: blocks of rows) are split over threads. kernels/weighted_sum.cc checks the
// arguments.
#pragma once

#include "kernels/weighted_sum.h"

namespace hadal::cpu {

void WeightedSumForward(const Stream& stream, const WeightedSumForwardArgs& args);
void WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args);

}  // namespace hadal::cpu
