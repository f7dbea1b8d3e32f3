// Whether a device has the kernels that a model trains with. Asked before a run starts, so that what is missing is a sentence, not a crash.
#pragma once

#include "absl/status/status.h"
#include "kernels/device_kernels.h"
#include "layers/model_plan.h"

namespace hadal {

// Errors: Unimplemented, naming what the method needs and has no version for the device.
absl::Status CheckDeviceSupport(const ModelPlan& plan, const DeviceKernels& kernels);

}  // namespace hadal
