// The initial value of every parameter: a function of (plan, seed, parameter, element) alone. The plan's records
// contain the distribution, and bounds and deviations that depend on the depth and the method (method_presets.h).
//
// Each parameter has its own counter-based random sequence, so any slice can be computed on any rank in any order, and
// no layout changes a value. Rank 0 computes the slices and sends them to the ranks that own them
// (pipeline/exchange/parameter_broadcast.h).
// Uniform: bound·(2u − 1), u uniform in [0, 1). Normal: deviation·z, z standard normal (Box-Muller in double).
// An embedding's row of <pad> is 0, as in fairseq.
#pragma once

#include <cstdint>

#include "layers/model_plan.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Fills `values` with consecutive elements of `parameter`, from element slice · kSliceElements on. REQUIRES: all are
// elements of the parameter. Threads: the stream's threads share the work; their number changes nothing.
void InitializeSlice(const Stream& stream, const ModelPlan& plan, uint64_t seed, int32_t parameter, int64_t slice,
                     Vector values);

}  // namespace hadal
