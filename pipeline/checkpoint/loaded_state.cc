#include "pipeline/checkpoint/loaded_state.h"

#include <utility>

#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/model_settings.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Sets weights, on a device if it is not null, to where they start.
void Apply(const DeepenedParameter& start, Vector weights, Device* device) {
  if (device == nullptr) return start.Apply(weights);
  std::vector<float> on_host(weights.size);
  const int64_t bytes = weights.size * static_cast<int64_t>(sizeof(float));
  device->CopyOut(on_host.data(), weights.data, bytes);
  start.Apply({on_host.data(), weights.size});
  device->CopyIn(weights.data, on_host.data(), bytes);
}

absl::Status LoadWeights(CheckpointReader& checkpoint, const AddedTokens& added, const StageState& state,
                         std::vector<SliceState> slices) {
  const ModelPlan& plan = state.plan();
  const std::vector<CheckpointParameter>& stored = checkpoint.manifest().parameters;
  HADAL_ASSIGN_OR_RETURN(const TokenRows rows, FindTokenRows(checkpoint, added.vocabularies));
  if (!rows.empty()) {
    HADAL_RETURN_IF_ERROR(CompareBesideRows(stored, plan, &rows));
    HADAL_RETURN_IF_ERROR(ReadRowsByToken(checkpoint, plan, rows, added.rows, added.seed, slices, state.device()));
    std::erase_if(slices, [&](const SliceState& slice) { return !rows.Of(plan, slice.parameter).empty(); });
  } else {
    HADAL_RETURN_IF_ERROR(CompareParameters(stored, DescribeParameters(plan)));
  }
  return checkpoint.ReadSlices(slices, state.device());
}

// Refuses moments of another optimizer than the run's.
absl::Status CompareOptimizers(const CheckpointReader& checkpoint, const ModelPlan& plan) {
  const bool muon = plan.muon_steps > 0;
  if (checkpoint.manifest().muon == muon) return absl::OkStatus();
  const auto name = [](bool is_muon) { return is_muon ? "muon" : "adam"; };
  return FailedPreconditionError(
      checkpoint.directory(), " holds the moments of optimizer.kind = \"", name(checkpoint.manifest().muon),
      "\", the run has \"", name(muon),
      "\", which cannot continue from them; set optimizer.kind as it was, or start a new run ",
      "from the checkpoint's weights with --init-from");
}

}  // namespace

std::vector<SliceState> StatesOf(std::span<const StateSlice> slices, LoadedState kinds) {
  std::vector<SliceState> result;
  for (const StateSlice& slice : slices) {
    SliceState& state = result.emplace_back();
    state.parameter = slice.parameter;
    state.slice = slice.slice;
    state.weight = slice.weight;  // or empty: another replica keeps it
    if (kinds != LoadedState::kAll) continue;
    state.first_moment = slice.first_moment;
    state.second_moment = slice.second_moment;
  }
  return result;
}

std::optional<DeepeningRule> DeepeningOf(LoadedState loaded) {
  if (loaded == LoadedState::kWeightsOfShallower) return DeepeningRule::kSplit;
  if (loaded == LoadedState::kWeightsOfShallowerAndZeros) return DeepeningRule::kZero;
  return std::nullopt;
}

absl::Status LoadState(CheckpointReader& checkpoint, LoadedState loaded, const AddedTokens& added,
                       const StageState& state) {
  std::vector<SliceState> slices = StatesOf(state.slices(), loaded);
  if (loaded == LoadedState::kWeights) return LoadWeights(checkpoint, added, state, std::move(slices));
  if (loaded == LoadedState::kAll) {
    HADAL_RETURN_IF_ERROR(CompareParameters(checkpoint.manifest().parameters, DescribeParameters(state.plan())));
    HADAL_RETURN_IF_ERROR(CompareOptimizers(checkpoint, state.plan()));
    return checkpoint.ReadSlices(slices, state.device());
  }
  HADAL_ASSIGN_OR_RETURN(const ModelPlan shallow, PlanOfCheckpoint(checkpoint.manifest(), checkpoint.directory()));
  HADAL_ASSIGN_OR_RETURN(const std::vector<DeepenedParameter> starts,
                         DeepenedParameters(shallow, state.plan(), *DeepeningOf(loaded)));
  std::vector<SliceState> sources = slices;
  for (SliceState& slice : sources) slice.parameter = starts[slice.parameter].source;
  HADAL_RETURN_IF_ERROR(checkpoint.ReadSlices(sources, state.device()));
  for (const SliceState& slice : slices) Apply(starts[slice.parameter], slice.weight, state.device());
  return absl::OkStatus();
}

}  // namespace hadal
