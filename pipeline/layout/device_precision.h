// The type in which a device stores the operands and results of matrix products, for a run's precision.
#pragma once

#include "pipeline/options/train_options.h"
#include "runtime/storage.h"

namespace hadal {

// Returns bf16 or fp32 as configured; "auto" is bf16.
Storage DeviceStorage(TrainingPrecision precision);

}  // namespace hadal
