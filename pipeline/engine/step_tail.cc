#include "pipeline/engine/step_tail.h"

#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {

void StepTail::Begin(const UpdateSettings& settings, int64_t update) {
  settings_ = settings;
  update_ = update;
}

absl::Status StepTail::ReduceTiedGradients(StepResult& result) {
  const Stopwatch watch;
  HADAL_RETURN_IF_ERROR(parts_.tied.ReduceGradients(stream(), parts_.stage.parameters(), timeout_));
  result.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status StepTail::ReduceOverReplicas(StepResult& result) {
  const Stopwatch watch;
  HADAL_RETURN_IF_ERROR(parts_.reduction.Finish(stream(), timeout_));
  if (!parts_.state.sharded()) HADAL_RETURN_IF_ERROR(parts_.reduction.GatherGradients(stream(), timeout_));
  result.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

absl::Status StepTail::ComputeNorm(std::span<const LossSums> losses, StepResult& result) {
  const Stopwatch watch;
  LossSums loss;
  for (const LossSums& sums : losses) loss.Add(sums);
  const StepVote vote = settings_.vote ? settings_.vote() : StepVote::kContinue;
  HADAL_ASSIGN_OR_RETURN(result.gradient, norm_.Compute(stream(), parts_.state, loss, vote, collectives_));
  result.applied =
      result.gradient.finite && settings_.apply && result.gradient.loss.MeanLoss() <= settings_.highest_loss;
  result.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

void StepTail::Update(StepResult& result) {
  const Stopwatch watch;
  if (result.applied) {
    if (settings_.before_update) settings_.before_update();
    result.times.checkpoint_seconds = watch.Seconds();
    if (!UpdatesByRounds()) {
      Update(parts_.state.updated(), result);
      stream().Synchronize();  // its time is the step's
    }
  }
  result.times.optimizer_seconds += watch.Seconds() - result.times.checkpoint_seconds;
}

void StepTail::Update(std::span<const StateSlice> slices, const StepResult& result) {
  UpdateParameters(stream(), parts_.state.plan(), slices,
                   {.optimizer = settings_.optimizer,
                    .learning_rate = settings_.learning_rate,
                    .gradient_norm = result.gradient.norm,
                    .update = update_,
                    .sizes = settings_.sizes});
}

absl::Status StepTail::GatherOverReplicas(StepResult& result) {
  const Stopwatch watch;
  double updating = 0;
  if (result.applied && parts_.state.sharded()) {
    ReplicaReduction::RoundUpdate update;
    if (UpdatesByRounds()) {
      update = [&](std::span<const StateSlice> slices) {
        const Stopwatch of_round;
        Update(slices, result);
        updating += of_round.Seconds();
      };
    }
    HADAL_RETURN_IF_ERROR(parts_.reduction.GatherWeights(stream(), timeout_, update));
  }
  result.times.optimizer_seconds += updating;
  result.times.communication_seconds += watch.Seconds() - updating;
  return absl::OkStatus();
}

absl::Status StepTail::DistributeTiedWeights(StepResult& result) {
  const Stopwatch watch;
  if (result.applied) {
    HADAL_RETURN_IF_ERROR(parts_.tied.DistributeWeights(stream(), parts_.stage.parameters(), timeout_));
  }
  result.times.communication_seconds += watch.Seconds();
  return absl::OkStatus();
}

}  // namespace hadal
