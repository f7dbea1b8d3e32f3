// sum += values on the device: kernels/add.h. fp32; elements are independent. Asynchronous.
#pragma once

#include "kernels/add.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

void Add(StreamHandle stream, const AddArgs& args);

}  // namespace hadal::cuda
