// When a stage's gradients are summed over its R replicas: pieces leave as the step's last backward completes them.
//
//   start(i) = max(complete(i), received(i−1))     received(i) = start(i) + (R−1) · bytes(i) / bandwidth
//   summed(i) = max(received(i) + latency, summed(i−1)) + (R−1) · adding
//
// for the pieces i of one owner, in the order in which they become complete: every slice has one owner
// (slice_ownership.h), which receives R−1 pieces of it, some from its node and some from others, over a link each.
// Every replica owns short runs of slices all over the depth, so that all receive from the first part that is complete
// to the last, which alone nothing is left to hide. What is complete: a chunk's last micro-batch goes backward from its
// last sublayer to its first, and lets its gradients go in parts of equal numbers of sublayers: as many as there are
// sublayers on CPUs, at most 16 where a device runs graphs (graph_cache.h). Tied tables come last, when all stages that
// use one have ended. Not modelled: that a segment is recomputed as a whole before its backward; what a sender can
// send, which is never the bound.
// Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/schedule_replay.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// Gradients that become complete together and have one owner.
struct GradientPiece {
  double complete_seconds = 0;
  int owner = 0;  // replica
  double elements = 0;
};

// The pieces of a stage, in the order in which they become complete, tied tables' last.
// `replay`: of the plan, with `sublayers` as costs.
std::vector<GradientPiece> GradientPieces(const ModelPlan& model, const PipelinePlan& plan, int stage,
                                          const std::vector<SublayerSeconds>& sublayers, const Replay& replay,
                                          int32_t most_parts);

// How an owner's R−1 pieces of a slice come to it.
struct ReplicaLinks {
  LinkRate near, far;
  int near_replicas = 0, far_replicas = 0;  // R−1 together
  double sum_seconds = 0;                   // of adding an element
};

// When all are summed; 0 without pieces.
double SummedSeconds(std::span<const GradientPiece> pieces, const ReplicaLinks& links);

}  // namespace hadal
