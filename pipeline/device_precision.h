// How a device stores what products read and write, for the precision that a run asks for.
#pragma once

#include "layers/model_plan.h"
#include "pipeline/train_options.h"

namespace hadal {

// bf16 or fp32 as asked for; "auto" is bf16, or fp32 where the model needs a kernel without a bf16 version (layers/device_support.h).
Storage DeviceStorage(const ModelPlan& plan, TrainingPrecision precision);

}  // namespace hadal
