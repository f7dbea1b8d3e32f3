// Head scale on the CPU: rows (backward: blocks of rows) are split over threads. kernels/head_scale.cc checks the
// arguments.
#pragma once

#include "kernels/head_scale.h"

namespace hadal::cpu {

void HeadScaleForward(const Stream& stream, const HeadScaleForwardArgs& args);
void HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args);

}  // namespace hadal::cpu
