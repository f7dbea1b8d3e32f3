// Shift and scale on the CPU: rows (backward: blocks of rows) are split over threads. kernels/shift_scale.cc checks the
// arguments.
#pragma once

#include "kernels/shift_scale.h"

namespace hadal::cpu {

void ShiftScaleForward(const Stream& stream, const ShiftScaleForwardArgs& args);
void ShiftScaleBackward(const Stream& stream, const ShiftScaleBackwardArgs& args);

}  // namespace hadal::cpu
