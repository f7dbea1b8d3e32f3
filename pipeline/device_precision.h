// How a device stores what products read and write, for the precision that a run asks for.
#pragma once

#include "pipeline/train_options.h"
#include "runtime/storage.h"

namespace hadal {

// bf16 or fp32 as asked for; "auto" is bf16.
Storage DeviceStorage(TrainingPrecision precision);

}  // namespace hadal
