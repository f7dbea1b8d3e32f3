// Linear layers on the CPU: products (product.h) and their epilogues. kernels/linear.cc checks the arguments.
#pragma once

#include "kernels/linear.h"

namespace hadal::cpu {

void LinearForward(const Stream& stream, const LinearForwardArgs& args);
void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args);
void ReluBackward(const Stream& stream, const ReluBackwardArgs& args);
void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args);

}  // namespace hadal::cpu
