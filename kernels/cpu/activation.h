// The activation of a feed-forward sublayer on the CPU; rows are split over threads. kernels/activation.cc checks the
// arguments.
#pragma once

#include "kernels/activation.h"

namespace hadal::cpu {

void ActivationForward(const Stream& stream, const ActivationForwardArgs& args);
void ActivationBackward(const Stream& stream, const ActivationBackwardArgs& args);

}  // namespace hadal::cpu
