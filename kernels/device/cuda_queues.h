// A GPU's streams and events as DeviceQueues (runtime/device_queues.h).
#pragma once

#include <memory>

#include "kernels/cuda/device_view.h"
#include "runtime/device_queues.h"

namespace hadal::cuda {

// `main`: the device's stream, which outlives the queues. Queues are non-blocking streams of the highest priority: a transfer's few blocks
// go in front of a kernel's many, whose peers wait for it.
std::unique_ptr<DeviceQueues> MakeCudaQueues(StreamHandle main);

}  // namespace hadal::cuda
