// Costs of a step from a machine's description alone: a roofline of every product and of every pass over memory.
//
//   product m × n × k   max(operations / rate, bytes / bandwidth, one kernel), where the rate falls as tiles leave
//                       units idle: tiles = ⌈m/T⌉·⌈n/T⌉·splits of k, waves = ⌈tiles / units⌉, rate = matmul_flops ·
//                       tiles / (waves · units) k is split (into parts of at least 4 T) where that shortens the product
//   attention           max(operations / attention_flops, bytes / bandwidth, one kernel); scores stay on the chip
//   joint               bias, dropout, gains, sum and LayerNorm in one pass: bytes / bandwidth, at least one kernel
// Kernels run one after the other. The GPU path's kernels are those (fused joint, attention without stored scores, ReLU
// and bias inside products); the CPU has a profile instead.
// Sentences of a typical length are assumed (pipeline_plan.h's), and full micro-batches.
#pragma once

#include <memory>

#include "tools/plan/machine.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// m × n × k, of elements of `element_bytes`: seconds of one product.
double ProductSeconds(const Machine& machine, double m, double n, double k, double element_bytes);

// Errors: InvalidArgument where the description has no rates (peak_tflops of its precision, memory_gb_per_second).
absl::StatusOr<std::unique_ptr<StepCosts>> MakeRooflineCosts(const Machine& machine);

}  // namespace hadal
