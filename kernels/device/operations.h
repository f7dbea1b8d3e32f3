// The table of what the CUDA kernels can do (kernels/device_kernels.h), for every device that can launch them.
//
// An operation takes the arguments of kernels/<op>.h, puts on the device what the kernel reads there, and launches. Matrices become views,
// offsets become tiles (attention) and positions (embedding), a batch's tokens are grouped (embedding's gradient).
// Asynchronous, but for SumsOfSquares, whose result is the host's.
#pragma once

#include "kernels/device_kernels.h"

namespace hadal::cuda {

const DeviceKernels& Operations();

}  // namespace hadal::cuda
