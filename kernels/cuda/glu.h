// Gated linear unit on the device: kernels/glu.h. value and y (or dy) are <float, float>, <BFloat16, BFloat16> or
// <BFloat16, float>. Numerics: fp32; elements are independent. Exponentials are those of CUDA's library. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/glu.h"

namespace hadal::cuda {

void GluForward(StreamHandle stream, const GluForwardArgs& args);
void GluBackward(StreamHandle stream, const GluBackwardArgs& args);

}  // namespace hadal::cuda
