// Shift and scale on the CPU: rows (backward: blocks of rows) split over threads. Arguments are checked by the caller
// (kernels/shift_scale.cc).
#pragma once

#include "kernels/shift_scale.h"

namespace hadal::cpu {

void ShiftScaleForward(const Stream& stream, const ShiftScaleForwardArgs& args);
void ShiftScaleBackward(const Stream& stream, const ShiftScaleBackwardArgs& args);

}  // namespace hadal::cpu
