// Puts host values of an operation's arguments into device memory; shared by the operations of operations.h.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda_host/launch_device.h"
#include "runtime/tensor.h"

namespace hadal::cuda {

// Returns `dropout` with its position in device memory: in launch memory unless it has a place.
inline Dropout OnDevice(Dropout dropout, LaunchDevice& device) {
  if (dropout.active() && dropout.device_position == nullptr) {
    dropout.device_position = device.launch_memory().Put(PositionOf(dropout)).address;
  }
  return dropout;
}

}  // namespace hadal::cuda
