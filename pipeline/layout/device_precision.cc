#include "pipeline/layout/device_precision.h"

namespace hadal {

Storage DeviceStorage(TrainingPrecision precision) {
  const bool bf16 = precision == TrainingPrecision::kAuto || precision == TrainingPrecision::kBf16;
  return bf16 ? Storage::kBFloat16 : Storage::kFloat32;
}

}  // namespace hadal
