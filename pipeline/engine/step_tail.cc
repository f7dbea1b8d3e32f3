#include "pipeline/engine/step_tail.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "pipeline/engine/engine.h"
#include "pipeline/layout/slice_ownership.h"
#include "pipeline/layout/sum_tree.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr size_t kHeadValues = 4;  // loss, nll, tokens, vote: in front of every rank's slice sums

// `losses`: of a replica's micro-batches.
LossSums SumOfGroups(std::span<const LossSums> losses, std::span<const GroupEnd> ends) {
  LossSums sum;
  std::vector<LossSums> kept(ends.size() - 1);
  size_t m = 0;
  for (const GroupEnd& end : ends) {
    for (; m <= static_cast<size_t>(end.micro_batch); ++m) sum.Add(losses[m]);
    for (const int place : end.kept) sum.Add(kept[place]);
    if (end.keep >= 0) kept[end.keep] = std::exchange(sum, {});
  }
  return sum;
}

}  // namespace

GradientNorm::GradientNorm(const ModelPlan& plan, const PipelineLayout& pipeline) : plan_(plan), grid_(pipeline.grid) {
  std::vector<size_t> first_slice;  // of each parameter
  size_t slices = 0;
  for (const ParameterRecord& parameter : plan.parameters) {
    first_slice.push_back(slices);
    slices += SliceCount(parameter);
  }
  owner_.resize(slices);
  const std::vector<std::vector<OwnedSlice>> stages = SlicesByStage(plan, pipeline);
  for (int stage = 0; stage < pipeline.grid.stages; ++stage) {
    for (const OwnedSlice& slice : stages[stage]) {
      owner_[first_slice[slice.parameter] + slice.slice] = pipeline.grid.RankOf(stage, slice.replica);
    }
  }
}

void GradientNorm::ListSlices(const StageState& state) {
  int64_t elements = 0;
  for (const StateSlice& slice : state.owned()) {
    slices_.push_back({slice.gradient, elements});
    elements += slice.gradient.size;
  }
  mine_.resize(kHeadValues + slices_.size());
}

absl::StatusOr<GlobalGradient> GradientNorm::Compute(const Stream& stream, const StageState& state,
                                                     const LossSums& loss, StepVote vote, Collectives& collectives) {
  if (mine_.empty()) ListSlices(state);
  mine_[0] = loss.loss;
  mine_[1] = loss.nll;
  mine_[2] = static_cast<double>(loss.tokens);
  mine_[3] = static_cast<double>(vote);
  SumsOfSquares(stream, {.slices = slices_, .sums = std::span(mine_).subspan(kHeadValues)});
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives.AllGather(mine_, "gradient norms"));

  GlobalGradient result;
  absl::InlinedVector<LossSums, 1> losses(grid_.replicas);
  int rank_of_values = 0;
  for (const std::vector<double>& values : all) {
    losses[grid_.ReplicaOf(rank_of_values++)].Add({values[0], values[1], static_cast<int64_t>(values[2])});
    result.vote = std::max(result.vote, static_cast<StepVote>(static_cast<int32_t>(values[3])));
  }
  for (const SumStep& step : SumSteps(grid_.replicas)) losses[step.into].Add(losses[step.from]);
  result.loss = losses[0];
  std::vector<size_t> next(all.size(), kHeadValues);
  std::vector<double> squares(plan_.sublayers.size(), 0.0);
  double total = 0;
  size_t owner = 0;  // of the next slice
  for (size_t p = 0; p < plan_.parameters.size(); ++p) {
    for (int64_t slice = 0; slice < SliceCount(plan_.parameters[p]); ++slice) {
      const int rank = owner_[owner++];
      const double square = all[rank][next[rank]++];
      squares[plan_.parameters[p].sublayer] += square;
      if (plan_.is_frozen(static_cast<int32_t>(p))) continue;
      total += square;
      if (!std::isfinite(square) && result.first_bad_parameter < 0)
        result.first_bad_parameter = static_cast<int32_t>(p);
    }
  }
  result.norm = std::sqrt(total);
  result.finite = result.first_bad_parameter < 0 && std::isfinite(result.loss.loss);
  for (const double square : squares) result.sublayer_norms.push_back(static_cast<float>(std::sqrt(square)));
  return result;
}

const Stream& StepTail::stream() const { return parts_.stage.stream(); }

bool StepTail::UpdatesByRounds() const {
  return stream().device() != nullptr && parts_.state.sharded() && parts_.reduction.active() &&
         settings_.sizes == nullptr;
}

void StepTail::Begin(const UpdateSettings& settings, int64_t update) {
  settings_ = settings;
  update_ = update;
}

absl::Status StepTail::ReduceTiedGradients(StepResult& result) {
  const Stopwatch watch;
  HADAL_RETURN_IF_ERROR(parts_.tied.ReduceGradients(stream(), parts_.groups, timeout_));
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
  const LossSums loss = losses.empty() ? LossSums() : SumOfGroups(losses, parts_.groups.ends());
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
                    .workspace = parts_.state.orthogonal_workspace(),
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
