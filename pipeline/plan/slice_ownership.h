// Decides which replica owns which slice of a stage's parameters: whole slices, balanced by bytes.
//
// A stage's slices, E elements, are dealt in runs of neighbours, starting with the last slice, since the last backward
// completes their gradients first. Each run goes to the replica with the fewest elements so far (the first of equals).
// With `left` elements not yet dealt, a run ends at the first slice with which it has
//   min(kRunElements, left / 2R)            elements
// Why runs: neighbours in memory are sent as one message and updated as one range. Why short ones: every replica then
// has something to receive throughout the last backward. If each owned one consecutive part of the depth, the owner of
// the first sublayers would receive its whole share at the end, when no compute is left to overlap with. Why ever
// shorter (guided self-scheduling, Polychronopoulos and Kuck 1987): a replica then owns at most E/R elements and one
// slice. When it was given its last run it had the fewest, so
//   (E − left)/R,   and   (E − left)/R + left/2R + slice ≤ E/R + slice.
// A pure function of model, cut and R. It decides who computes, stores and saves; it changes no bit of the result.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/plan/pipeline_plan.h"

namespace hadal {

// Also the longest message between replicas (replica_buckets.h): long enough that latency is negligible, short enough
// to be still in a cache when it is added.
inline constexpr int64_t kRunElements = int64_t{1} << 18;

struct OwnedSlice {
  int32_t parameter = 0;
  int64_t slice = 0;     // of the parameter
  int64_t elements = 0;  // kSliceElements, or the rest in the last one
  int replica = 0;       // its owner
};

// The slices of the parameters whose first use is on `stage`, ascending by (parameter, slice).
std::vector<OwnedSlice> SlicesOfStage(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// The slices that the replica of `pipeline` updates: its own if the optimizer's state is sharded, else all of the
// stage's. Ascending.
std::vector<SliceRange> UpdatedSlices(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// [S] the slices of each stage, as SlicesOfStage returns them.
std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelinePlan& pipeline);

}  // namespace hadal
