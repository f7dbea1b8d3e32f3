// Converts views in the operations' arguments to views for kernels; shared by the operations of operations.h.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda_host/launch_device.h"
#include "runtime/tensor.h"

namespace hadal::cuda {

inline DeviceMatrix<float> ViewOf(const Matrix& m) { return {m.data, m.stride}; }
inline DeviceMatrix<const float> ViewOf(const ConstMatrix& m) { return {m.data, m.stride}; }
// REQUIRES: stored as T, or empty.
template <typename T>
DeviceMatrix<T> ViewOf(const AnyMatrix& m) {
  return {m.of<T>().data, m.stride};
}
template <typename T>
DeviceMatrix<const T> ViewOf(const ConstAnyMatrix& m) {
  return {m.of<T>().data, m.stride};
}

// Calls body(T()) with the element type of `storage`.
template <typename Body>
void WithElement(Storage storage, Body&& body) {
  if (storage == Storage::kFloat32) return body(float());
  body(BFloat16());
}

inline DeviceDropout ViewOf(const Dropout& dropout, LaunchDevice& device) {
  if (!dropout.active()) return {};
  if (dropout.device_position != nullptr) return MakeDeviceDropout(dropout, dropout.device_position);
  return MakeDeviceDropout(dropout, device.launch_memory().Put(PositionOf(dropout)));
}

// Returns residual_norm's branch gain as its kernels read it: its place if it has one, else launch memory. Null: 1.
template <typename Args>
DevicePointer<const float> BranchGainOf(const Args& args, LaunchDevice& device) {
  if (args.device_branch_gain != nullptr) return args.device_branch_gain;
  if (args.branch_gain == 1.0f) return {};
  return device.launch_memory().Put(args.branch_gain);
}

}  // namespace hadal::cuda
