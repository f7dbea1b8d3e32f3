// The residual connection on the CPU, one row at a time, so that all passes over a row are in cache. Rows (backward:
// blocks of rows) are split over threads. kernels/residual_norm.cc checks the arguments.
#pragma once

#include "kernels/residual_norm.h"

namespace hadal::cpu {

void ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args);
void ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args);

}  // namespace hadal::cpu
