// A GPU's streams and events as DeviceQueues (runtime/device_queues.h).
#pragma once

#include <functional>
#include <memory>

#include "kernels/cuda/device_view.h"
#include "runtime/device_queues.h"
#include "runtime/device_watch.h"

namespace hadal::cuda {

// The queues that it makes are non-blocking streams of the highest priority: a transfer, for which a peer waits, has
// few thread blocks and should run before the many of a kernel.
// `device`: CUDA's number of the GPU. Calls also set it as the calling thread's current device, because CUDA would open
// GPU 0 for a new thread. `main`: the device's main stream. `standstill`: called before each call that may make the
// host wait for the device (runtime/device.h). `main` and `watch` must outlive the queues.
std::unique_ptr<DeviceQueues> MakeCudaQueues(int device, StreamHandle main, DeviceWatch& watch,
                                             std::function<void()> standstill);

}  // namespace hadal::cuda
