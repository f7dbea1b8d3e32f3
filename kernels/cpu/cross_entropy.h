// Cross-entropy and its gradient on the CPU: rows are split over threads. kernels/cross_entropy.cc checks the
// arguments.
#pragma once

#include "kernels/cross_entropy.h"

namespace hadal::cpu {

void CrossEntropy(const Stream& stream, const CrossEntropyArgs& args);

}  // namespace hadal::cpu
