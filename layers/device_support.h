// Whether a device has the kernels that a model trains with. Asked before a run starts, so that a missing kernel is an
// error with words, not a crash.
#pragma once

#include "absl/status/status.h"
#include "kernels/device_kernels.h"
#include "layers/model_plan.h"

namespace hadal {

// Errors: Unimplemented, naming what the method needs and the device lacks.
absl::Status CheckDeviceSupport(const ModelPlan& plan, const DeviceKernels& kernels);

}  // namespace hadal
