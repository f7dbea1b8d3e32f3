// Linear layers on the CPU, called by kernels/linear.cc, which checks the arguments. Each thread calls oneDNN's sgemm
// serially for its own output rows and then applies bias, ReLU and dropout to them (backward: the ReLU mask).
#pragma once

#include "kernels/linear.h"

namespace hadal::cpu {

void LinearForward(const Stream& stream, const LinearForwardArgs& args);
void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args);
void ReluBackward(const Stream& stream, const ReluBackwardArgs& args);
void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args);

}  // namespace hadal::cpu
