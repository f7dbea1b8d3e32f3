#include "pipeline/slice_ownership.h"

#include <algorithm>

namespace hadal {

std::vector<OwnedSlice> SlicesOfStage(const ModelPlan& plan, const PipelinePlan& pipeline, int stage) {
  std::vector<OwnedSlice> slices;
  int64_t total = 0;
  for (int chunk = 0; chunk < pipeline.shape.chunks; ++chunk) {
    for (int32_t s = pipeline.first_sublayer(stage, chunk); s < pipeline.last_sublayer(stage, chunk); ++s) {
      const SublayerRecord& sublayer = plan.sublayers[s];
      for (int32_t p = sublayer.first_parameter; p < sublayer.first_parameter + sublayer.parameters; ++p) {
        const int64_t elements = plan.parameters[p].elements();
        for (int64_t slice = 0; slice < SliceCount(plan.parameters[p]); ++slice) {
          slices.push_back({p, slice, std::min(kSliceElements, elements - slice * kSliceElements)});
        }
        total += elements;
      }
    }
  }
  int64_t before = 0;
  for (OwnedSlice& slice : slices) {
    slice.replica = static_cast<int>(pipeline.grid.replicas * (2 * before + slice.elements) / (2 * total));
    before += slice.elements;
  }
  return slices;
}

SliceRange UpdatedSlices(const ModelPlan& plan, const PipelinePlan& pipeline, int stage) {
  if (!pipeline.shard_optimizer_state) return {};
  constexpr SliceRange::Place kNone(0, 0);
  SliceRange range{kNone, kNone};
  for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
    if (slice.replica != pipeline.replica) continue;
    if (range.end == kNone) range.begin = {slice.parameter, slice.slice};
    range.end = {slice.parameter, slice.slice + 1};
  }
  return range;
}

std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelinePlan& pipeline) {
  std::vector<std::vector<OwnedSlice>> stages;
  stages.reserve(pipeline.grid.stages);
  for (int stage = 0; stage < pipeline.grid.stages; ++stage) stages.push_back(SlicesOfStage(plan, pipeline, stage));
  return stages;
}

}  // namespace hadal
