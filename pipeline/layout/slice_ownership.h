// Assigns every slice of a stage's parameters to an owner among the stage's R replicas, balanced by elements. With and
// without sharding, the owner sums the slice's gradients over the replicas, and saves its weights and moments in
// checkpoints. With sharding, the owner alone stores the moments and updates the slice.
//
// It also assigns the slices to rounds: in each round, the replicas exchange the gradients of about one bucket for each
// owner (exchange/replica_reduction.h).
//
// Method: the E elements of a stage are dealt in rounds, starting with the last slice, because the last backward
// completes the gradients of the last slices first. A round cuts at most R runs of consecutive slices. With `left`
// elements of the stage not yet dealt, a run ends at the first slice with which it has
//   min(B, max(left / (2R), min(B/8, left / R)))   elements,   B = BucketElements(E, R)
// The longest run of a round goes to the replica with the fewest elements so far, and so on (ties: the first).
// So the elements of two replicas differ at most as much as the lengths of two runs of one round; a replica without a
// run in the last round counts as length 0. That is usually less than a slice.
// Three groups of parameters are dealt separately, in this order: those that products read in bf16, because they are
// neighbours in memory; all that are in neither of the other two groups; tables that are used in several places, whose
// gradients are complete last.
// Matrices that Muon updates (ModelPlan::uses_muon) are dealt before these three, whole: all slices of one have one
// owner and one round. They are balanced by the operations that orthogonalise them (frozen ones by elements), longest
// processing time first (Graham 1969): in descending order, each goes to the replica with the least so far (ties: the
// first). A round of theirs ends, from the last matrix down, before an owner would have more than B elements in it; a
// larger matrix is alone with its owner.
// Rounds are numbered in the order in which their gradients become complete.
// Why runs: neighbours with one owner are sent as one message and updated as one range. Why many rounds: every replica
// then receives gradients throughout the last backward. With one long range per replica, the owner of the first
// sublayers would receive its whole share at the end, when no compute is left to overlap with. Why the last rounds are
// shorter (guided self-scheduling, Polychronopoulos and Kuck 1987): nothing is left to overlap with the last one.
// Threads: pure; a function of model, partition and R. Ownership changes no bit of the result.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/layout/pipeline_layout.h"

namespace hadal {

// The elements that an owner receives from each other replica in a round: a 16th of its share of the stage's
// `elements`, but 1 to 8 MiB of gradients. Long enough that latency is negligible, short enough that a stage has many
// rounds. The last rounds are shorter, down to an 8th of that.
int64_t BucketElements(int64_t elements, int replicas);

struct OwnedSlice {
  int32_t parameter = 0;
  int64_t slice = 0;     // of the parameter
  int64_t elements = 0;  // kSliceElements, or the rest in the last one
  int replica = 0;       // its owner
  int round = 0;         // in which the replicas exchange its gradient
};

// Whether a parameter is used in several places, so that its gradient is complete only when the gradients of all uses
// have been summed (exchange/tied_tables.h).
bool IsTiedTable(const ModelPlan& plan, int32_t parameter);

// Returns the slices of the parameters whose first use is on `stage`, ascending by (parameter, slice).
std::vector<OwnedSlice> SlicesOfStage(const ModelPlan& plan, const PipelineLayout& pipeline, int stage);
// Returns the slices of the stage that replica pipeline.replica updates: those that it owns if the optimizer state is
// sharded, else all. Ascending.
std::vector<SliceRange> UpdatedSlices(const ModelPlan& plan, const PipelineLayout& pipeline, int stage);
// Returns SlicesOfStage of each stage.  [S]
std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelineLayout& pipeline);

}  // namespace hadal
