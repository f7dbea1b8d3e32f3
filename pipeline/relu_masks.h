// Whether the ReLUs of a run's feed-forward layers have masks (layers/feed_forward.h): its device is asked before its
// memory is laid out, so that what is reserved is used.
//
// A device's library offers the products that write and read a mask by their shapes. Those of a run are known: rows are
// one of a few sizes (row_bucket.h), the rest is the model's. `hadal plan`, which has no device to ask, takes masks for
// granted and says what they take.
#pragma once

#include <cstdint>

#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "runtime/stream.h"

namespace hadal {

// ModelPlan::relu_masks for this device: whether it has the products for some size of micro-batch. `bucket_rows`:
// PipelineOptions'. A function of the arguments, the device and its library. May be a standstill (runtime/device.h). On
// the CPU false.
bool HasReluMasks(const ModelPlan& plan, const ActivationCapacity& capacity, int64_t bucket_rows, const Stream& stream);

}  // namespace hadal
