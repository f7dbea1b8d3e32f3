// Models when a stage's gradients are summed over its R replicas, overlapped with the step's last backward.
//
//   start(i) = max(complete(i), received(i−1))     received(i) = start(i) + (R−1) · bytes(i) / bandwidth
//   summed(i) = max(received(i) + latency, summed(i−1)) + (R−1) · adding
//
// for the pieces i of one owner, in the order in which they become complete. Every slice has one owner
// (slice_ownership.h), which receives R−1 pieces of it, some from its own node and some from others, over one link
// each. Every replica owns short runs of slices all over the depth, so all of them receive from the first completed
// part to the last, which alone cannot be overlapped.
// Completion: in a chunk's last micro-batch, backward goes from the last sublayer to the first, and sends its gradients
// in parts of equal numbers of sublayers: one per sublayer on CPUs, at most 16 where a device runs graphs
// (graph_cache.h). Tied tables come last, when all stages that use one have finished. Not modelled: that a segment is
// recomputed as a whole before its backward; the senders' limits, which are never the bound.
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

// The links over which an owner receives the R−1 pieces of a slice.
struct ReplicaLinks {
  LinkRate near, far;
  int near_replicas = 0, far_replicas = 0;  // R−1 together
  double sum_seconds = 0;                   // to add one element
};

// The time when all pieces are summed; 0 without pieces.
double SummedSeconds(std::span<const GradientPiece> pieces, const ReplicaLinks& links);

}  // namespace hadal
