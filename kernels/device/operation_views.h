// How the host's views become a kernel's: shared by the operations of operations.h.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"
#include "kernels/device/launch_device.h"
#include "runtime/tensor.h"

namespace hadal::cuda {

inline DeviceMatrix<float> ViewOf(const Matrix& m) { return {m.data, m.stride}; }
inline DeviceMatrix<const float> ViewOf(const ConstMatrix& m) { return {m.data, m.stride}; }

inline DeviceDropout ViewOf(const Dropout& dropout, LaunchDevice& device) {
  if (!dropout.active()) return {};
  return MakeDeviceDropout(dropout, device.launch_memory().Put(PositionOf(dropout)));
}

// A factor as kernels take it: null is 1.
inline DevicePointer<const float> FactorOf(float factor, LaunchDevice& device) {
  if (factor == 1.0f) return {};
  return device.launch_memory().Put(factor);
}

}  // namespace hadal::cuda
