// What one layout of a run would do on a machine: memory of every stage, and the time of a step by replay of its
// schedule.
//
//   step = replay (computation, bubble, links) + gradients over replicas that nothing hides + update + gathering of
//   weights
//
// Memory is the arena's, category by category, as training would lay it out (memory_fit.h). With bf16 the same list is
// charged by what each category holds on a GPU: what products read 2 bytes an element and 4 for the fp32 master where
// it is updated, other weights, gradients and moments 4 each, activations and borders 2 where the residual stream is
// bf16 (post-norm methods), else 4. All told a parameter that products read takes 18 bytes, with the optimizer's state
// cut over R replicas 6 + 12/R.
//
// Gradients over replicas (replica_reduction.h): a rank sends (R-1)/R of its stage's gradients and receives as much,
// and after the update the same of its weights. Where transfers run beside computation gradients leave as the last
// backward completes them (gradient_overlap.h); elsewhere all of them do behind it.
// Placement: ranks fill nodes in order, rank = stage·R + replica.
// Not modelled: contention inside a switch, jitter, data loading, checkpoints, validation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/train_options.h"
#include "tools/plan/machine.h"
#include "tools/plan/step_breakdown.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// Where the time of a step goes, seconds; they sum to the step.
struct PredictedParts {
  double compute = 0;  // forward, recomputation, backward; mean over the stages
  double bubble = 0;
  double imbalance = 0;
  double links = 0;
  double reduction = 0;  // gradients over replicas and tied tables, as far as not hidden, and weights back
  double update = 0;     // zeroing, norm, Adam of the fullest stage

  double sum() const { return compute + bubble + imbalance + links + reduction + update; }
};

struct StageBytes {
  int64_t total = 0;
  int64_t state = 0;        // weights, gradients, moments
  int64_t activations = 0;  // the rest
};

struct LayoutPrediction {
  BatchOptions batch;
  PipelineOptions pipeline;  // stages, replicas, chunks, schedule, checkpointing, sharding
  double step_seconds = 0;
  PredictedParts parts;
  double idle_share = 0;                  // of the ranks' time before the tail
  int busiest_stage = 0;                  // whose work no schedule can beat
  std::vector<StageBytes> stages;         // [S] of the fullest replica
  std::vector<double> busy_seconds;       // [S]
  std::vector<double> forward_seconds;    // [S] of it
  std::vector<double> recompute_seconds;  // [S] of it

  int ranks() const { return pipeline.stages * pipeline.replicas; }
  int64_t FullestBytes() const;
  double TargetTokens() const { return static_cast<double>(batch.micro_batches) * batch.target_tokens; }
};

// Which machine a layout is predicted for.
struct LayoutMachine {
  const StepCosts& costs;
  int devices_per_node = 1;
  Precision precision = Precision::kFp32;
  int threads = 1;  // a rank; they count for scratch memory on CPUs
};

// How closely to look.
enum class PredictionDetail {
  kStep,   // the step's time alone, all waiting counted as bubble: one replay
  kParts,  // memory, and imbalance and links told apart: three replays
};

// Time and memory of a layout.
// Errors: those of MakePipelinePlan, of the costs.
absl::StatusOr<LayoutPrediction> PredictLayout(const ModelPlan& model, const BatchOptions& batch,
                                               const PipelineOptions& pipeline, const LayoutMachine& machine,
                                               PredictionDetail detail = PredictionDetail::kParts);

// The same for a plan that exists, replica 0's.
absl::StatusOr<LayoutPrediction> PredictPlan(const ModelPlan& model, const BatchOptions& batch,
                                             const PipelinePlan& plan, const LayoutMachine& machine,
                                             PredictionDetail detail = PredictionDetail::kParts);

// Seconds in which the R replicas of a stage give each other (R-1)/R of `bytes`, one way.
double ExchangeSeconds(double bytes, int replicas, const LayoutMachine& machine);
// Whether stages `stage` and `next` of R replicas lie on different nodes.
bool LeavesNode(int stage, int next, int replicas, const LayoutMachine& machine);

// What an element of the residual stream takes: 2 bytes where it is bf16 and a norm bounds it, else 4.
int64_t StreamBytes(const ModelOptions& model, Precision precision);

// Its memory alone, [S] of the fullest replica. `plan`: replica 0's.
std::vector<StageBytes> MemoryOfStages(const ModelPlan& model, const PipelinePlan& plan, const LayoutMachine& machine);

}  // namespace hadal
