// Steps of a sampling order, where no error is expected.
#pragma once

#include <cstdint>

#include "runtime/check.h"
#include "runtime/data/sampling_order.h"

namespace hadal {

// The next step of an order; `step` as SamplingOrder::Next's.
inline StepBatches NextStep(SamplingOrder& order, int64_t step = 0) {
  StepBatches batches;
  HADAL_CHECK(order.Next(step, batches).ok());
  return batches;
}

// Step `step` of an order that has not been read from, with so many micro-batches a step.
inline StepBatches StepOf(SamplingOrder order, int64_t step, int64_t micro_batches) {
  order.Skip(step * micro_batches);
  return NextStep(order, step);
}

}  // namespace hadal
