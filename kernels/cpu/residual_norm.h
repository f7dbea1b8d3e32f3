// The residual connection on the CPU: one row at a time, with its passes in cache; rows (backward: blocks of rows) are
// split over threads. Arguments are checked by the caller (kernels/residual_norm.cc). Two files:
// residual_norm_{forward,backward}.cc.
#pragma once

#include "kernels/residual_norm.h"

namespace hadal::cpu {

void ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args);
void ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args);

}  // namespace hadal::cpu
