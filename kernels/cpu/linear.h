// Linear layers on the CPU: each thread calls oneDNN's sgemm serially for its own output rows, then the epilogue.
// kernels/linear.cc checks the arguments.
#pragma once

#include "kernels/linear.h"

namespace hadal::cpu {

void LinearForward(const Stream& stream, const LinearForwardArgs& args);
void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args);
void ReluBackward(const Stream& stream, const ReluBackwardArgs& args);
void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args);

}  // namespace hadal::cpu
