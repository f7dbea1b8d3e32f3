// Checks before a run or a plan that a device's kernels can train the model, so that their limits give an error message
// instead of an abort.
#pragma once

#include "absl/status/status.h"
#include "layers/model_plan.h"

namespace hadal {

// Checks that the model is within the limits of the kernels (kernels/device_kernels.h), and that its residual streams
// can be stored in plan.compute_storage: some methods do not allow bf16. Errors: Unimplemented, naming the setting.
absl::Status CheckDeviceSupport(const ModelPlan& plan);

}  // namespace hadal
