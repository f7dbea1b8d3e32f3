// Hyper-connections on the CPU: rows (gradients of gates and bias: blocks of rows) are split over threads.
// kernels/hyper_connection.cc checks the arguments.
#pragma once

#include "kernels/hyper_connection.h"

namespace hadal::cpu {

void HyperReadForward(const Stream& stream, const HyperReadForwardArgs& args);
void HyperWriteForward(const Stream& stream, const HyperWriteForwardArgs& args);
void HyperWriteBackward(const Stream& stream, const HyperWriteBackwardArgs& args);
void HyperReadBackward(const Stream& stream, const HyperReadBackwardArgs& args);
void CopyToResiduals(const Stream& stream, const CopyToResidualsArgs& args);
void SumResiduals(const Stream& stream, const SumResidualsArgs& args);

}  // namespace hadal::cpu
