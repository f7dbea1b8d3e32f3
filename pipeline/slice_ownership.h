// Which replica keeps which slice of a stage's parameters: whole slices, balanced by bytes.
//
// The slices of a stage in (parameter, slice) order hold E elements; with b elements before a slice of e elements, its owner is
//   owner = floor(R · (b + e/2) / E)        the replica in whose share of [0, E) the slice's middle lies
// so that a replica owns one consecutive run of at most E/R elements and one slice. Consecutive, because neighbours in memory
// travel as one message and are updated as one range.
// A pure function of model, cut and R. It decides who computes, stores and saves, never a bit of the result.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/pipeline_plan.h"

namespace hadal {

struct OwnedSlice {
  int32_t parameter = 0;
  int64_t slice = 0;     // of the parameter
  int64_t elements = 0;  // kSliceElements, or the rest in the last one
  int replica = 0;       // its owner
};

// The slices of the parameters whose first use is on `stage`, ascending by (parameter, slice).
std::vector<OwnedSlice> SlicesOfStage(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// Those that the replica of `pipeline` updates: its own when the optimizer's state is sharded, else all of the stage's.
SliceRange UpdatedSlices(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// [S] for each stage the slices of the parameters whose first use is there, ascending by (parameter, slice).
std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelinePlan& pipeline);

}  // namespace hadal
