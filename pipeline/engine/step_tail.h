// StepTail executes the end of a training step, after the backward of all micro-batches: it reduces gradients, applies
// the update and redistributes the weights.
//
//   ReduceTiedGradients → ReduceOverReplicas → ComputeNorm → Update → GatherOverReplicas → DistributeTiedWeights
// One method per tail instruction of the program (schedule.h); the program executor calls them in this order.
// On a device with replicas and a sharded optimizer, GatherOverReplicas also launches the update, round by round, so
// that the first weights travel while the rest is updated. Its launches count as the optimizer's time, the rest as
// communication.
// ComputeNorm also decides whether the update is applied, with the same result on every rank. Each method adds its time
// to StepResult::times.
// Threads: one per rank. Blocking: the methods that return a Status are collective; all ranks call them in the same
// order.
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
#include "pipeline/options/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// Arguments of the tail of one training step.
struct UpdateSettings {
  OptimizerOptions optimizer;
  double learning_rate = 0;
  // Returns this rank's vote; called just before the norms are exchanged, so that the vote counts for this step.
  // May be empty.
  std::function<StepVote()> vote;
  double highest_loss = std::numeric_limits<double>::infinity();  // per token; above it the update is skipped
  std::function<void()> before_update;  // called just before weights and moments change; may be empty
  bool apply = true;                    // false: gradients only, no weight changes
  // Receives the size of the update for this rank's slices; null: not measured.
  std::vector<UpdateSize>* sizes = nullptr;
};

struct StepResult {
  GlobalGradient gradient;  // with the step's loss sums; the same on every rank
  bool applied = false;     // false: gradient not finite, loss too high, or apply is false; weights are unchanged
  StageTimes times;         // of this rank
  double seconds = 0;
};

class StepTail {
 public:
  // `parts`: bound before the first step. All must outlive the object.
  StepTail(const ModelPlan& plan, const PipelineLayout& pipeline, RankParts& parts, Collectives& collectives,
           absl::Duration timeout)
      : parts_(parts), collectives_(collectives), timeout_(timeout), norm_(plan, pipeline) {}

  // Starts the tail of a step. `update`: its number (StepScalars).
  void Begin(const UpdateSettings& settings, int64_t update);

  absl::Status ReduceTiedGradients(StepResult& result);
  absl::Status ReduceOverReplicas(StepResult& result);
  // `losses`: of this rank's micro-batches; empty on ranks without the output head.
  absl::Status ComputeNorm(std::span<const LossSums> losses, StepResult& result);
  void Update(StepResult& result);
  absl::Status GatherOverReplicas(StepResult& result);
  absl::Status DistributeTiedWeights(StepResult& result);

 private:
  const Stream& stream() const { return parts_.stage.stream(); }
  // Whether rounds of weights are updated while others are gathered. On the CPU the thread that updates also moves
  // messages.
  bool UpdatesByRounds() const {
    return stream().device() != nullptr && parts_.state.sharded() && parts_.reduction.active() &&
           settings_.sizes == nullptr;
  }
  void Update(std::span<const StateSlice> slices, const StepResult& result);

  RankParts& parts_;
  Collectives& collectives_;
  absl::Duration timeout_;
  GradientNorm norm_;
  UpdateSettings settings_;
  int64_t update_ = 1;
};

}  // namespace hadal
