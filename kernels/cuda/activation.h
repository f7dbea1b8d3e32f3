// The activation of a feed-forward sublayer on the device: kernels/activation.h. All matrices are float or BFloat16.
// Numerics: fp32; elements are independent. Exponentials are those of CUDA's library. REQUIRES: an active dropout
// has its device_position (runtime/random.h). Asynchronous.
#pragma once

#include "kernels/activation.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

void ActivationForward(StreamHandle stream, const ActivationForwardArgs& args);
void ActivationBackward(StreamHandle stream, const ActivationBackwardArgs& args);

}  // namespace hadal::cuda
