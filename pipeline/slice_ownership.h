// Which replica keeps which slice of a stage's parameters: whole slices, balanced by bytes.
//
// The slices of a stage, E elements, are dealt in runs of neighbours, from the last one down, which is the order in
// which the last backward completes their gradients. The next run goes to the replica that has the fewest elements so
// far (of equals the first), and with `left` elements not yet dealt it ends at the first slice with which it has
//   min(kRunElements, left / 2R)            elements
// Runs, because neighbours in memory travel as one message and are updated as one range. Short ones, because all
// replicas are then to receive something at every moment of the last backward: one consecutive part of the depth for
// each would leave the owner of the first sublayers to receive its whole share when nothing is left to hide it. Ever
// shorter ones (guided self-scheduling, Polychronopoulos and Kuck 1987), because a replica then owns at most E/R
// elements and one slice: when it was given its last run it had the fewest,
//   (E − left)/R,   and   (E − left)/R + left/2R + slice ≤ E/R + slice.
// A pure function of model, cut and R. It decides who computes, stores and saves, never a bit of the result.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/pipeline_plan.h"

namespace hadal {

// As long as a message between replicas (replica_buckets.h): long enough that its latency does not count, short enough
// to be in a cache when it is added.
inline constexpr int64_t kRunElements = int64_t{1} << 18;

struct OwnedSlice {
  int32_t parameter = 0;
  int64_t slice = 0;     // of the parameter
  int64_t elements = 0;  // kSliceElements, or the rest in the last one
  int replica = 0;       // its owner
};

// The slices of the parameters whose first use is on `stage`, ascending by (parameter, slice).
std::vector<OwnedSlice> SlicesOfStage(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// Those that the replica of `pipeline` updates: its own when the optimizer's state is sharded, else all of the stage's.
// Ascending.
std::vector<SliceRange> UpdatedSlices(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// [S] for each stage the slices of the parameters whose first use is there, ascending by (parameter, slice).
std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelinePlan& pipeline);

}  // namespace hadal
