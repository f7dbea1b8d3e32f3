// Predicts when the gradients of a stage are summed over its R replicas, if the sums overlap the last backward of a
// step.
//
//   start(i)    = max(complete(i), received(i−1))
//   received(i) = start(i) + (R−1) · bytes(i) / bandwidth
//   summed(i)   = max(received(i) + latency, called(i), summed(i−1)) + (R−1) · adding
// where i counts the pieces of one owner in order of completion, and called(i) is when the host has made the calls for
// this piece and for those of all owners that were complete before: a rank sends or receives each of them, one call
// after the other. A piece is a set of slices with the same owner whose
// gradients become complete together. Each slice has one owner among the replicas (slice_ownership.h), which receives
// the slice's gradient from the R−1 others, each over one link within or between nodes.
// The slices of every owner are spread over the depth of the stage, so each owner receives during the whole backward;
// only the transfer of the last piece cannot overlap it.
// Completion: during the last micro-batch of a chunk, backward runs from the last sublayer to the first and sends
// gradients in parts with equal numbers of sublayers: one sublayer per part on CPUs, at most 16 parts on a device with
// graphs (graph_cache.h). Tied tables are last, after every stage that uses one.
// Not modelled: recomputation of a whole segment before its backward; send limits, which are never the bottleneck.
// Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/plan/pipeline_plan.h"
#include "pipeline/schedule/schedule_replay.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// Gradients of one owner that become complete together.
struct GradientPiece {
  double complete_seconds = 0;
  int owner = 0;  // replica
  double elements = 0;
};

// The pieces of a stage, in the order in which they become complete; tied tables are last.
// `replay`: of the plan, with the costs `sublayers`. `most_parts`: StepCosts::backward_parts().
std::vector<GradientPiece> GradientPieces(const ModelPlan& model, const PipelinePlan& plan, int stage,
                                          const std::vector<SublayerSeconds>& sublayers, const Replay& replay,
                                          int32_t most_parts);

// The messages of one exchange between the replicas of a stage: the buckets of replica_buckets.h, counted without the
// stage's memory (neighbours in the list of slices are taken for neighbours in memory).
double ReplicaBuckets(const ModelPlan& model, const PipelinePlan& plan, int stage);

// The links over which an owner receives the R−1 pieces of a slice.
struct ReplicaLinks {
  LinkRate near, far;
  int near_replicas = 0, far_replicas = 0;  // R−1 together
  double sum_seconds = 0;                   // to add one element
  double host_seconds = 0;                  // of a rank's calls, for one element of a piece
};

// The time when all pieces are summed; 0 without pieces. `pieces`: in order of completion.
double SummedSeconds(std::span<const GradientPiece> pieces, const ReplicaLinks& links);

}  // namespace hadal
