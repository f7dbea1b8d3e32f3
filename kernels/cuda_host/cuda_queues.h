// A GPU's streams and events as DeviceQueues (runtime/device_queues.h).
#pragma once

#include <functional>
#include <memory>

#include "kernels/cuda/device_view.h"
#include "runtime/device_queues.h"
#include "runtime/device_watch.h"

namespace hadal::cuda {

// `main`: the device's stream; must outlive the queues. Queues are non-blocking streams of the highest priority: a
// transfer, for which a peer waits, has few blocks and should run before a kernel's many.
// `device`: its number. A thread that has not used it chooses it here, because CUDA would open GPU 0 for that thread.
// `standstill`: called before each call that may make the host wait for the device. `watch` must outlive the queues.
std::unique_ptr<DeviceQueues> MakeCudaQueues(int device, StreamHandle main, DeviceWatch& watch,
                                             std::function<void()> standstill);

}  // namespace hadal::cuda
