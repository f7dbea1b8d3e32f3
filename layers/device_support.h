// Checks that a device has the kernels that a model trains with, before a run starts: a missing kernel is then an error
// with a message, not a crash.
#pragma once

#include "absl/status/status.h"
#include "kernels/device_kernels.h"
#include "layers/model_plan.h"

namespace hadal {

// Errors: Unimplemented, with what the method needs and the device lacks.
absl::Status CheckDeviceSupport(const ModelPlan& plan, const DeviceKernels& kernels);

}  // namespace hadal
