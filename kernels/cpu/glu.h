// The gated linear unit on the CPU; rows are split over threads. kernels/glu.cc checks the arguments.
#pragma once

#include "kernels/glu.h"

namespace hadal::cpu {

void GluForward(const Stream& stream, const GluForwardArgs& args);
void GluBackward(const Stream& stream, const GluBackwardArgs& args);

}  // namespace hadal::cpu
