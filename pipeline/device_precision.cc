#include "pipeline/device_precision.h"

#include "layers/device_support.h"

namespace hadal {

Storage DeviceStorage(const ModelPlan& plan, TrainingPrecision precision) {
  if (precision == TrainingPrecision::kBf16) return Storage::kBFloat16;
  if (precision != TrainingPrecision::kAuto) return Storage::kFloat32;
  return CheckBf16Support(plan).ok() ? Storage::kBFloat16 : Storage::kFloat32;
}

}  // namespace hadal
