// Assigns every slice of a stage's parameters to an owner among the stage's R replicas, balanced by elements. With
// sharding the owner stores the slice's optimizer state; it also sums its gradients and saves it.
//
// Method: the slices of a stage (E elements in all) are assigned in runs of consecutive slices, starting with the last,
// because the last backward completes the gradients of the last slices first. Each run goes to the replica with the
// fewest elements so far (ties: the first). With `left` elements not yet assigned, a run ends at the first slice with
// which it has
//   min(kRunElements, left / 2R)            elements
// Why runs: consecutive slices are sent as one message and updated as one range. Why short runs: every replica then
// receives gradients throughout the last backward. With one long range per replica, the owner of the first sublayers
// would receive its whole share at the end, when no compute is left to overlap with. Why decreasing lengths (guided
// self-scheduling, Polychronopoulos and Kuck 1987): a replica then owns at most E/R elements plus one slice, because it
// had the fewest elements when it got its last run:
//   (E − left)/R,   and   (E − left)/R + left/2R + slice ≤ E/R + slice.
// Threads: pure; a function of model, partition and R. Ownership changes no bit of the result.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/plan/pipeline_plan.h"

namespace hadal {

// Maximum elements of a run, and of a message between replicas (replica_buckets.h): long enough that latency is
// negligible, short enough that the received data is still in a cache when it is added.
inline constexpr int64_t kRunElements = int64_t{1} << 18;

struct OwnedSlice {
  int32_t parameter = 0;
  int64_t slice = 0;     // of the parameter
  int64_t elements = 0;  // kSliceElements, or the rest in the last one
  int replica = 0;       // its owner
};

// Returns the slices of the parameters whose first use is on `stage`, ascending by (parameter, slice).
std::vector<OwnedSlice> SlicesOfStage(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// Returns the slices that the replica of `pipeline` updates: those it owns if the optimizer state is sharded, else all
// of the stage. Ascending.
std::vector<SliceRange> UpdatedSlices(const ModelPlan& plan, const PipelinePlan& pipeline, int stage);
// Returns SlicesOfStage of each stage.  [S]
std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelinePlan& pipeline);

}  // namespace hadal
