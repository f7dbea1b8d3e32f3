// Checks before a run that a device has all kernels that training the model needs, so that a missing kernel gives an
// error message instead of an abort.
#pragma once

#include "absl/status/status.h"
#include "kernels/device_kernels.h"
#include "layers/model_plan.h"

namespace hadal {

// Checks that the model's residual streams can be stored in plan.compute_storage: some methods do not allow bf16.
// Errors: Unimplemented, naming the setting.
absl::Status CheckDeviceStorage(const ModelPlan& plan);

// Checks that `kernels` has every kernel that the model needs, and does CheckDeviceStorage. Errors: Unimplemented,
// naming the feature of the model and the kernel that the device lacks.
absl::Status CheckDeviceSupport(const ModelPlan& plan, const DeviceKernels& kernels);

}  // namespace hadal
