// The table of the CUDA kernels (kernels/device_kernels.h), for every device that can launch them.
//
// An operation takes the arguments of kernels/<op>.h, copies host values that the kernel reads to the device, and
// launches. Sentence offsets are converted to tiles (attention) or positions (embedding); tokens are grouped
// (embedding's gradient). Asynchronous, except SumsOfSquares, whose result is on the host.
#pragma once

#include "kernels/device_kernels.h"

namespace hadal::cuda {

const DeviceKernels& Operations();

}  // namespace hadal::cuda
