#include "pipeline/stage/stage_state.h"

#include <algorithm>
#include <utility>

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

// Where the moments of those `slices` lie that `kept` says, one behind the other as the weights do: those that products
// read rounded, then the others, with the weights' gaps between sublayers; behind a slice that is left out aligned as
// the weights are.
struct MomentOffsets {
  std::vector<int64_t> offsets;  // [slices], −1: not kept
  int64_t end = 0;
};
template <typename Kept>
MomentOffsets PlaceMoments(const ModelPlan& plan, std::span<const StateSlice> slices, const Kept& kept) {
  constexpr int64_t kAligned = AlignedSublayer(1);
  MomentOffsets moments{.offsets = std::vector<int64_t>(slices.size(), -1)};
  for (const Storage storage : {Storage::kBFloat16, Storage::kFloat32}) {
    int32_t sublayer = -1;
    int64_t offset = 0;    // of a weight in its sublayer
    bool follows = false;  // the slice before, which is kept
    for (size_t i = 0; i < slices.size(); ++i) {
      if (plan.read_storage(slices[i].parameter) != storage) continue;
      const int32_t next = plan.parameters[slices[i].parameter].sublayer;
      if (std::exchange(sublayer, next) != next) offset = 0;
      if (kept(slices[i])) {
        if (!follows || offset == 0) moments.end = AlignedSublayer(moments.end) + offset % kAligned;
        moments.offsets[i] = std::exchange(moments.end, moments.end + slices[i].elements);
      }
      follows = kept(slices[i]);
      offset += slices[i].elements;
    }
  }
  return moments;
}

}  // namespace

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
  MomentOffsets moments =
      PlaceMoments(plan, slices_, [&](const StateSlice& slice) { return !sharded_ || slice.owner == replica_; });
  moment_offsets_ = std::move(moments.offsets);
  moment_floats_ = moments.end;
  first_moment_slice_ = layout.ReserveLasting<float>("optimizer", moment_floats_);
  second_moment_slice_ = layout.ReserveLasting<float>("optimizer", moment_floats_);
  constexpr int64_t kSavedFloats = 3;  // an element's weight and two moments
  for (const StateSlice& slice : owned_) {
    buffer_floats_ += kSavedFloats * slice.elements;
    if (layout.host_apart()) staging_floats_ = std::max(staging_floats_, kSavedFloats * slice.elements);
  }
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
  for (size_t i = 0; i < slices_.size(); ++i) {
    StateSlice& slice = slices_[i];
    slice.weight = parameters.WeightSlice(slice.parameter, slice.slice);
    slice.rounded = parameters.RoundedSlice(slice.parameter, slice.slice);
    if (!trains) continue;
    slice.gradient = SliceOf(OwnedGradient(parameters, slice.parameter), slice.slice);
    const int64_t offset = moment_offsets_[i];
    if (offset < 0) continue;
    slice.first_moment = {first + offset, slice.elements};
    slice.second_moment = {second + offset, slice.elements};
  }
  ListOwned();
}

}  // namespace hadal
