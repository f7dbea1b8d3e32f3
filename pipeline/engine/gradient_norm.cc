#include "pipeline/engine/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "pipeline/layout/slice_ownership.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr size_t kHeadValues = 4;  // loss, nll, tokens, vote: in front of every rank's slice sums

}  // namespace

GradientNorm::GradientNorm(const ModelPlan& plan, const PipelineLayout& pipeline) : plan_(plan) {
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
  for (const std::vector<double>& values : all) {
    result.loss.Add({values[0], values[1], static_cast<int64_t>(values[2])});
    result.vote = std::max(result.vote, static_cast<StepVote>(static_cast<int32_t>(values[3])));
  }
  std::vector<size_t> next(all.size(), kHeadValues);
  std::vector<double> squares(plan_.sublayers.size(), 0.0);
  double total = 0;
  size_t owner = 0;  // of the next slice
  for (size_t p = 0; p < plan_.parameters.size(); ++p) {
    for (int64_t slice = 0; slice < SliceCount(plan_.parameters[p]); ++slice) {
      const int rank = owner_[owner++];
      const double square = all[rank][next[rank]++];
      total += square;
      squares[plan_.parameters[p].sublayer] += square;
      if (!std::isfinite(square) && result.first_bad_parameter < 0)
        result.first_bad_parameter = static_cast<int32_t>(p);
    }
  }
  result.norm = std::sqrt(total);
  result.finite = result.first_bad_parameter < 0 && std::isfinite(result.loss.loss);
  for (const double square : squares) result.sublayer_norms.push_back(static_cast<float>(std::sqrt(square)));
  return result;
}

}  // namespace hadal
