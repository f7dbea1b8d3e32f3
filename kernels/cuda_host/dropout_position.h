// Puts the position of dropout's random numbers into device memory; shared by the operations of operations.h.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda_host/launch_device.h"

namespace hadal::cuda {

// Returns `dropout` with device_position set: unchanged if it is set or dropout is inactive, else after copying the
// position to launch memory, where it stays valid for this operation's launches (launch_memory.h).
inline Dropout OnDevice(Dropout dropout, LaunchDevice& device) {
  if (dropout.active() && dropout.device_position == nullptr) {
    dropout.device_position = device.launch_memory().Put(PositionOf(dropout)).address;
  }
  return dropout;
}

}  // namespace hadal::cuda
