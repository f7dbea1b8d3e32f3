// Decides whether a run's feed-forward layers store ReLU masks, one bit per hidden unit (layers/feed_forward.cc). The
// device is queried before memory is laid out, so that memory is reserved only for masks that are used.
//
// A device's library offers the products that write and read a mask only for some shapes. A run's shapes are known:
// rows take one of a few sizes (row_bucket.h), the model determines the rest. `hadal plan` has no device; it assumes
// masks and prints their size.
#pragma once

#include <cstdint>

#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "runtime/stream.h"

namespace hadal {

// Returns the value of ModelPlan::relu_masks for this device: true if it has the products for every size of
// micro-batch; false on the CPU. `bucket_rows`: PipelineOptions::bucket_rows. A function of the arguments, the device
// and its library. May make the device idle (a standstill, runtime/device.h).
bool HasReluMasks(const ModelPlan& plan, const ActivationCapacity& capacity, int64_t bucket_rows, const Stream& stream);

}  // namespace hadal
