#include "pipeline/stage/stage_state.h"

#include <algorithm>
#include <utility>

#include "kernels/orthogonalize.h"
#include "pipeline/layout/slice_ownership.h"

namespace hadal {
namespace {

// The gradient of an owned parameter: its own, or its first use's.
Vector OwnedGradient(const ParameterStore& parameters, int32_t parameter) {
  const ParameterRecord& record = parameters.plan().parameters[parameter];
  if (!record.is_table()) return parameters.GradientVector(parameter);
  const Matrix table = parameters.TableGradient(record.sublayer, parameter);
  return {table.data, table.rows * table.columns};
}

}  // namespace

// One behind the other as the weights lie: those that products read rounded, then the others, with the weights' gaps
// between sublayers; behind a slice that is left out aligned as the weights are.
template <typename Kept>
StageState::MomentPlaces StageState::PlaceMoments(const Kept& kept) const {
  constexpr int64_t kAligned = AlignedSublayer(1);
  MomentPlaces moments{.offsets = std::vector<int64_t>(slices_.size(), -1)};
  for (const Storage storage : {Storage::kBFloat16, Storage::kFloat32}) {
    int32_t sublayer = -1;
    int64_t offset = 0;    // of a weight in its sublayer
    bool follows = false;  // the slice before, which is kept
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (plan_.read_storage(slices_[i].parameter) != storage) continue;
      const int32_t next = plan_.parameters[slices_[i].parameter].sublayer;
      if (std::exchange(sublayer, next) != next) offset = 0;
      if (kept(slices_[i])) {
        if (!follows || offset == 0) moments.end = AlignedSublayer(moments.end) + offset % kAligned;
        moments.offsets[i] = std::exchange(moments.end, moments.end + slices_[i].elements);
      }
      follows = kept(slices_[i]);
      offset += slices_[i].elements;
    }
  }
  return moments;
}

StageState::StageState(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, Purpose purpose,
                       ArenaLayout& layout)
    : plan_(plan), purpose_(purpose), sharded_(pipeline.shard_optimizer_state), replica_(pipeline.replica) {
  for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
    slices_.push_back({.parameter = slice.parameter,
                       .slice = slice.slice,
                       .owner = slice.replica,
                       .round = slice.round,
                       .elements = slice.elements});
  }
  ListOwned();
  if (purpose == Purpose::kInference) return;
  const auto is_kept = [&](const StateSlice& slice) { return !sharded_ || slice.owner == replica_; };
  first_ = PlaceMoments(is_kept);
  second_ = PlaceMoments([&](const StateSlice& slice) { return is_kept(slice) && !plan.uses_muon(slice.parameter); });
  first_moment_slice_ = layout.ReserveLasting<float>("optimizer", first_.end);
  second_moment_slice_ = layout.ReserveLasting<float>("optimizer", second_.end);
  for (const StateSlice& slice : owned_) {
    const int64_t saved = (plan.uses_muon(slice.parameter) ? 2 : 3) * slice.elements;  // a weight and its moments
    buffer_floats_ += saved;
    if (layout.host_apart()) staging_floats_ = std::max(staging_floats_, saved);
  }
  for (const StateSlice& slice : updated()) {
    if (!plan.uses_muon(slice.parameter)) continue;
    const ParameterRecord& matrix = plan.parameters[slice.parameter];
    orthogonal_floats_ = std::max(orthogonal_floats_,
                                  OrthogonalizeFloats(matrix.rows, matrix.columns, plan.read_storage(slice.parameter)));
  }
  orthogonal_slice_ = layout.Reserve<float>("workspace", orthogonal_floats_);
  buffer_floats_ = std::min(buffer_floats_, pipeline.save_buffer_bytes / int64_t{sizeof(float)});
  buffer_slice_ = layout.ReserveLastingHostBytes("checkpoint buffer", buffer_floats_ * int64_t{sizeof(float)});
  staging_slice_ = layout.ReserveLastingHostBytes("checkpoint buffer", staging_floats_ * int64_t{sizeof(float)});
}

void StageState::ListOwned() {
  owned_.clear();
  for (const StateSlice& slice : slices_) {
    if (slice.owner == replica_) owned_.push_back(slice);
  }
}

void StageState::Bind(const Arena& arena, const ParameterStore& parameters) {
  device_ = arena.device();
  const bool trains = purpose_ == Purpose::kTraining;
  float* first = trains ? arena.Get<float>(first_moment_slice_) : nullptr;
  float* second = trains ? arena.Get<float>(second_moment_slice_) : nullptr;
  if (trains) save_buffer_ = {arena.Get<float>(buffer_slice_), buffer_floats_};
  if (trains) save_staging_ = {arena.Get<float>(staging_slice_), staging_floats_};
  if (trains) orthogonal_workspace_ = {arena.Get<float>(orthogonal_slice_), orthogonal_floats_};
  for (size_t i = 0; i < slices_.size(); ++i) {
    StateSlice& slice = slices_[i];
    slice.weight = parameters.WeightSlice(slice.parameter, slice.slice);
    slice.rounded = parameters.RoundedSlice(slice.parameter, slice.slice);
    if (!trains) continue;
    slice.gradient = SliceOf(OwnedGradient(parameters, slice.parameter), slice.slice);
    slice.first_moment = first_.Of(first, i, slice.elements);
    slice.second_moment = second_.Of(second, i, slice.elements);
  }
  ListOwned();
}

}  // namespace hadal
