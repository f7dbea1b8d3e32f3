// sum += values on the device: the formula of kernels/add.h. fp32; elements are independent. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

struct AddArgs {
  int64_t size = 0;
  DevicePointer<float> sum;           // [n] (+=)
  DevicePointer<const float> values;  // [n]
};
void Add(StreamHandle stream, const AddArgs& args);

}  // namespace hadal::cuda
