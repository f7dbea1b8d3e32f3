// The tail of a training step, once after all its micro-batches: what a step makes of its gradients.
//
//   ReduceTiedGradients → ReduceOverReplicas → ComputeNorm → Update → GatherOverReplicas → DistributeTiedWeights
// A verb an instruction of the program (schedule.h); the executor's switch calls them. From the norm on, all ranks have
// decided the same: whether the update is applied. Times are added to the result's.
// Threads: one a rank. Blocking: all. Every rank makes every call at the same place.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/output_head.h"
#include "pipeline/engine/gradient_norm.h"
#include "pipeline/engine/parameter_update.h"
#include "pipeline/engine/rank_parts.h"
#include "pipeline/plan/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// What the tail of a training step needs to know.
struct UpdateSettings {
  OptimizerOptions optimizer;
  double learning_rate = 0;
  // Asked as late as it can still count for the step: before its norms are exchanged. May be empty.
  std::function<StopVote()> vote;
  double highest_loss = std::numeric_limits<double>::infinity();  // a token; the update of a step above it is left out
  std::function<void()> before_update;  // called just before weights and moments change; may be empty
  bool apply = true;                    // false: gradients only, no weight changes
  // Receives what the update changed of this rank's slices; null: nobody asks.
  std::vector<UpdateSize>* sizes = nullptr;
};

struct StepResult {
  GlobalGradient gradient;  // with the step's loss sums; the same on every rank
  bool applied = false;     // false: not finite, a spike of the loss, or not wanted: nothing was changed
  StageTimes times;         // of this rank
  double seconds = 0;
};

class StepTail {
 public:
  // `parts`: bound before the first step. All must outlive the object.
  StepTail(const ModelPlan& plan, const PipelinePlan& pipeline, RankParts& parts, Collectives& collectives,
           absl::Duration timeout)
      : parts_(parts), collectives_(collectives), timeout_(timeout), norm_(plan, pipeline) {}

  // Of the step that begins. `update`: its number (StepScalars).
  void Begin(const UpdateSettings& settings, int64_t update);

  absl::Status ReduceTiedGradients(StepResult& result);
  absl::Status ReduceOverReplicas(StepResult& result);
  // `losses`: of this rank's micro-batches; empty but on the head's ranks.
  absl::Status ComputeNorm(std::span<const LossSums> losses, StepResult& result);
  void Update(StepResult& result);
  absl::Status GatherOverReplicas(StepResult& result);
  absl::Status DistributeTiedWeights(StepResult& result);

 private:
  const Stream& stream() const { return parts_.stage.stream(); }

  RankParts& parts_;
  Collectives& collectives_;
  absl::Duration timeout_;
  GradientNorm norm_;
  UpdateSettings settings_;
  int64_t update_ = 1;
};

}  // namespace hadal
