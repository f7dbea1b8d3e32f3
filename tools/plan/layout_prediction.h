// Predicts a layout of a run on a machine: the memory of every stage, and the time of a step by replaying its schedule.
//
//   step = replay (computation, bubble, links) + reduction of gradients over replicas that is not overlapped + update +
//   gathering of weights
//
// Memory is the arena's, category by category, as training would lay it out (memory_fit.h). With bf16, each category is
// charged with what it takes on a GPU: what products read takes 2 bytes an element, and 4 for the fp32 master where it
// is updated; other weights, gradients and moments take 4 each; activations and borders take 2 if the residual stream
// is bf16 (post-norm methods), else 4. In total a parameter that products read takes 18 bytes, or 6 + 12/R with the
// optimizer's state sharded over R replicas.
//
// Gradients over replicas (replica_reduction.h): a rank sends (R-1)/R of its stage's gradients and receives as much,
// and as much again of its weights after the update. If transfers overlap computation, gradients are sent as the last
// backward completes them (gradient_overlap.h); otherwise all are sent after it.
// Placement: ranks fill nodes in order, rank = stage·R + replica.
// Not modelled: contention inside a switch, jitter, data loading, checkpoints, validation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/plan/pipeline_plan.h"
#include "pipeline/plan/train_options.h"
#include "tools/plan/machine.h"
#include "tools/plan/step_breakdown.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// Where the time of a step goes, in seconds; the parts sum to the step.
struct PredictedParts {
  double compute = 0;  // forward, recomputation, backward; mean over the stages
  double bubble = 0;
  double imbalance = 0;
  double links = 0;
  double reduction = 0;  // gradients over replicas and tied tables, as far as not overlapped, and gathering weights
  double update = 0;     // zeroing, norm, and Adam on the fullest stage

  double sum() const { return compute + bubble + imbalance + links + reduction + update; }
};

struct StageBytes {
  int64_t total = 0;
  int64_t state = 0;        // weights, gradients, moments
  int64_t activations = 0;  // the rest
};

struct LayoutPrediction {
  BatchOptions batch;
  PipelineOptions pipeline;  // stages, replicas, chunks, schedule, recompute, sharding
  double step_seconds = 0;
  PredictedParts parts;
  double idle_share = 0;                  // of the ranks' time before the tail
  int busiest_stage = 0;                  // no schedule is faster than this stage's work
  std::vector<StageBytes> stages;         // [S] of the fullest replica
  std::vector<double> busy_seconds;       // [S]
  std::vector<double> forward_seconds;    // [S] part of busy_seconds
  std::vector<double> recompute_seconds;  // [S] part of busy_seconds

  int ranks() const { return pipeline.stages * pipeline.replicas; }
  int64_t FullestBytes() const;
  double TargetTokens() const { return static_cast<double>(batch.micro_batches) * batch.target_tokens; }
};

// The machine for which a layout is predicted.
struct LayoutMachine {
  const StepCosts& costs;
  int devices_per_node = 1;
  Precision precision = Precision::kFp32;
  int threads = 1;  // of a rank; they determine scratch memory on CPUs
};

// How much to predict.
enum class PredictionDetail {
  kStep,   // only the step's time, with all waiting counted as bubble: one replay
  kParts,  // also memory, and imbalance and links separately: three replays
};

// Predicts time and memory of a layout.
// Errors: those of MakePipelinePlan and of the costs.
absl::StatusOr<LayoutPrediction> PredictLayout(const ModelPlan& model, const BatchOptions& batch,
                                               const PipelineOptions& pipeline, const LayoutMachine& machine,
                                               PredictionDetail detail = PredictionDetail::kParts);

// As PredictLayout, for an existing plan, replica 0's.
absl::StatusOr<LayoutPrediction> PredictPlan(const ModelPlan& model, const BatchOptions& batch,
                                             const PipelinePlan& plan, const LayoutMachine& machine,
                                             PredictionDetail detail = PredictionDetail::kParts);

// Seconds for the R replicas of a stage to send each other (R-1)/R of `bytes`, one way.
double ExchangeSeconds(double bytes, int replicas, const LayoutMachine& machine);
// Whether stages `stage` and `next` of R replicas are on different nodes.
bool LeavesNode(int stage, int next, int replicas, const LayoutMachine& machine);

// Bytes of an element of the residual stream: 2 if it is bf16 and a norm bounds it, else 4.
int64_t ResidualBytes(const ModelOptions& model, Precision precision);

// Only the layout's memory, [S] of the fullest replica. `plan`: replica 0's.
std::vector<StageBytes> MemoryOfStages(const ModelPlan& model, const PipelinePlan& plan, const LayoutMachine& machine);

}  // namespace hadal
