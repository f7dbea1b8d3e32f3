// The costs of a step from a machine's description alone: a roofline model of every product and every pass over memory.
//
//   product m × n × k   max(operations / rate, bytes / bandwidth, one kernel). The rate falls as tiles leave units
//                       idle: tiles = ⌈m/T⌉·⌈n/T⌉·splits of k, waves = ⌈tiles / units⌉, rate = matmul_flops · tiles /
//                       (waves · units), with Machine's matmul_units and T = matmul_tile (step_costs.h). k is split
//                       (into parts of at least 4 T) if that shortens the product
//   attention           max(operations / attention_flops, bytes / bandwidth, one kernel); scores stay on the chip
//   joint               the end of a sublayer: bias, dropout, gains, sum and LayerNorm in one pass: bytes / bandwidth,
//                       at least one kernel
//   hyper-connections   in place of joint, for several residual streams (kernels/hyper_connection.h): the passes over
//                       them, and the product from which the mixing coefficients of each row are computed
// Kernels run one after the other. The kernels are those of the GPU path (fused joint, attention without stored scores,
// ReLU and bias inside products); for a CPU use a profile.
// Assumes sentences of kTypicalSentenceRows (pipeline/layout/pipeline_layout.h) and full micro-batches.
#pragma once

#include <memory>

#include "tools/plan/step_costs.h"

namespace hadal {

// Seconds of one product m × n × k, with elements of `element_bytes`.
double ProductSeconds(const Machine& machine, double m, double n, double k, double element_bytes);

// Errors: InvalidArgument if the description lacks the rates (peak_tflops of its precision, memory_gb_per_second).
absl::StatusOr<std::unique_ptr<StepCosts>> MakeRooflineCosts(const Machine& machine);

}  // namespace hadal
