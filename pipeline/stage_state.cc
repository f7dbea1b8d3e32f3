#include "pipeline/stage_state.h"

#include <algorithm>

#include "pipeline/slice_ownership.h"

namespace hadal {
namespace {

// The gradient of an owned parameter: its own, or its first use's.
Vector OwnedGradient(const ParameterStore& parameters, int32_t parameter) {
  const ParameterRecord& record = parameters.plan().parameters[parameter];
  if (record.role != ParameterRole::kEmbedding) return parameters.GradientVector(parameter);
  const Matrix table = parameters.TableGradient(record.sublayer);
  return {table.data, table.rows * table.columns};
}

Vector SliceOf(Vector values, int64_t slice) {
  const int64_t first = slice * kSliceElements;
  return {values.data + first, std::min(kSliceElements, values.size - first)};
}

// Where the moments of slices lie, one behind the other, with the weights' gaps between sublayers.
class MomentPlaces {
 public:
  explicit MomentPlaces(const ModelPlan& plan) : plan_(plan) {}
  // Of the next slice: `elements` of `parameter`.
  int64_t Next(int32_t parameter, int64_t elements) {
    const int32_t sublayer = plan_.parameters[parameter].sublayer;
    if (sublayer != sublayer_) end_ = AlignedSublayer(end_);
    sublayer_ = sublayer;
    end_ += elements;
    return end_ - elements;
  }
  int64_t end() const { return end_; }

 private:
  const ModelPlan& plan_;
  int32_t sublayer_ = -1;
  int64_t end_ = 0;
};

}  // namespace

StageState::StageState(const ModelPlan& plan, const PipelinePlan& pipeline, int stage, bool training,
                       ArenaLayout& layout)
    : plan_(plan), training_(training), sharded_(pipeline.shard_optimizer_state) {
  const std::vector<OwnedSlice> slices = SlicesOfStage(plan, pipeline, stage);
  for (const OwnedSlice& slice : slices) {
    if (slice.replica < pipeline.replica) ++owned_.begin;
    if (slice.replica <= pipeline.replica) ++owned_.end;
    slices_.push_back({.parameter = slice.parameter, .slice = slice.slice, .owner = slice.replica});
  }
  updated_ = sharded_ ? owned_ : Range{0, slices_.size()};
  if (!training) return;
  MomentPlaces places(plan);
  for (size_t i = updated_.begin; i < updated_.end; ++i) places.Next(slices[i].parameter, slices[i].elements);
  moment_floats_ = places.end();
  first_moment_slice_ = layout.Reserve<float>("optimizer", moment_floats_);
  second_moment_slice_ = layout.Reserve<float>("optimizer", moment_floats_);
  constexpr int64_t kSavedFloats = 3;  // an element's weight and two moments
  for (size_t i = owned_.begin; i < owned_.end; ++i) buffer_floats_ += kSavedFloats * slices[i].elements;
  buffer_floats_ = std::min(buffer_floats_, pipeline.save_buffer_bytes / int64_t{sizeof(float)});
  buffer_slice_ = layout.ReserveHostBytes("checkpoint buffer", buffer_floats_ * int64_t{sizeof(float)});
}

void StageState::Bind(const Arena& arena, const ParameterStore& parameters) {
  device_ = arena.device();
  float* first = training_ ? arena.Get<float>(first_moment_slice_) : nullptr;
  float* second = training_ ? arena.Get<float>(second_moment_slice_) : nullptr;
  MomentPlaces places(plan_);
  if (training_) save_buffer_ = {arena.Get<float>(buffer_slice_), buffer_floats_};
  for (size_t i = 0; i < slices_.size(); ++i) {
    StateSlice& slice = slices_[i];
    slice.weight = SliceOf(parameters.WeightVector(slice.parameter), slice.slice);
    slice.rounded = parameters.RoundedOf(slice.weight);
    if (!training_) continue;
    slice.gradient = SliceOf(OwnedGradient(parameters, slice.parameter), slice.slice);
    if (i < updated_.begin || i >= updated_.end) continue;
    const int64_t place = places.Next(slice.parameter, slice.weight.size);
    slice.first_moment = {first + place, slice.weight.size};
    slice.second_moment = {second + place, slice.weight.size};
  }
}

}  // namespace hadal
