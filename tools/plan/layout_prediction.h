// Predicts the time of a step of a layout on a machine, by replaying its schedule.
//
//   step = replay (computation, host, bubble, links) + reduction of gradients over replicas that is not overlapped +
//   update + gathering of weights
//
// Host: before each forward and backward the device waits for its host (StepCosts::GapSeconds), which also posts the
// micro-batch's receive and send (CallSeconds each, if there is more than one stage).
// Groups of micro-batches (group_sums.h): the backward also moves and adds gradients.
// Gradients over replicas (replica_reduction.h): a rank sends (R-1)/R of its stage's gradients and receives as much,
// and as much again of its weights after the update. If transfers overlap computation, gradients are sent as the last
// backward completes them (gradient_overlap.h); otherwise all are sent after it. Either way they take their links'
// time or their calls' time, whichever is longer: each of a stage's rounds (slice_ownership.h) needs a group of 2·(R-1)
// calls of each rank for the gradients, and as many for the weights.
// With a sharded optimizer on GPUs, weights are gathered while later rounds are updated (gradient_overlap.h).
// A tied table of other stages travels in pieces of 4 MiB, of which two are under way (tied_tables.h).
// Not modelled: contention inside a switch, jitter, data loading, checkpoints, validation.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "tools/plan/step_breakdown.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// Where the time of a step goes, in seconds; the parts sum to the step. step_breakdown.h defines the first five.
struct PredictedParts {
  double compute = 0;  // forward, recomputation, backward; mean over the stages
  double host = 0;     // devices wait for their hosts
  double bubble = 0;
  double imbalance = 0;
  double links = 0;
  double reduction = 0;  // gradients over replicas and tied tables, as far as not overlapped, and gathering weights
  double update = 0;     // zeroing, norm, and the optimizer on the slowest stage

  double sum() const { return compute + host + bubble + imbalance + links + reduction + update; }
};

struct LayoutPrediction {
  BatchOptions batch;
  PipelineOptions pipeline;  // stages, replicas, chunks, schedule, recompute, sharding
  RecomputeFit recompute_fit;
  ReplayCosts costs;  // with which the schedule is replayed
  double step_seconds = 0;
  PredictedParts parts;
  double idle_share = 0;                  // of the ranks' time before the tail
  int busiest_stage = 0;                  // no schedule is faster than this stage's work
  double calls = 0;                       // sends and receives of the rank that makes the most
  std::vector<double> busy_seconds;       // [S]
  std::vector<double> forward_seconds;    // [S] part of busy_seconds
  std::vector<double> recompute_seconds;  // [S] part of busy_seconds

  int ranks() const { return pipeline.stages * pipeline.replicas; }
  double tail_seconds() const { return parts.reduction + parts.update; }
  double TargetTokens() const { return static_cast<double>(batch.micro_batches) * batch.target_tokens; }
};

// The machine for which a layout is predicted.
struct LayoutMachine {
  const StepCosts& costs;
  int devices_per_node = 1;
};

// How much to predict.
enum class PredictionDetail {
  kStep,   // only the step's time, with all waiting counted as bubble: one replay
  kParts,  // also host, imbalance and links separately: three replays
};

// Predicts the time of a plan's step. `pipeline`: replica 0's. `model`: with the types in which the device stores
// numbers (ModelPlan::compute_storage). In the result's `pipeline`, only the fields that PipelineLayout has are set.
// Errors: those of the costs.
absl::StatusOr<LayoutPrediction> PredictLayout(const ModelPlan& model, const BatchOptions& batch,
                                               const PipelineLayout& pipeline, const LayoutMachine& machine,
                                               PredictionDetail detail = PredictionDetail::kParts);

// Returns the costs' seconds of each sublayer, recomputed or not as `pipeline` says.
absl::StatusOr<std::vector<SublayerSeconds>> SecondsOf(const ModelPlan& model, const PipelineLayout& pipeline,
                                                       const StepCosts& costs);

// Returns the largest sum of `of`(matrix) over the matrices that one replica of each stage orthogonalises (Muon).  [S]
std::vector<double> MostOfMuonByStage(const ModelPlan& model, const PipelineLayout& pipeline,
                                      absl::FunctionRef<double(const ParameterRecord&)> of);

// Returns the host's time for each forward and backward in a pipeline of `global_chunks` chunks: the launch, and two
// calls if there are messages.
double PhaseGapSeconds(const StepCosts& costs, int global_chunks);
// Seconds for the R replicas of a stage to send each other (R-1)/R of `bytes`, one way, in `rounds` groups.
double ExchangeSeconds(double bytes, double rounds, const GridShape& grid, const LayoutMachine& machine);
// Whether stages `stage` and `next` of a pipeline are on different nodes. Ranks fill nodes in order.
bool LeavesNode(const GridShape& grid, int stage, int next, const LayoutMachine& machine);

}  // namespace hadal
