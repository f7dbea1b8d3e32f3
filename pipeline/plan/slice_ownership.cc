#include "pipeline/plan/slice_ownership.h"

#include <algorithm>

namespace hadal {
namespace {

// Gives each slice its owner.  `elements`: of all of them.
void Deal(int64_t elements, int replicas, std::vector<OwnedSlice>& slices) {
  std::vector<int64_t> owned(replicas, 0);
  int64_t left = elements;
  for (auto slice = slices.rbegin(); slice != slices.rend();) {
    const auto fewest = std::min_element(owned.begin(), owned.end());
    const int64_t wanted = std::min(kRunElements, left / (2 * replicas));
    int64_t run = 0;
    do {
      slice->replica = static_cast<int>(fewest - owned.begin());
      run += slice->elements;
      ++slice;
    } while (run < wanted);
    *fewest += run;
    left -= run;
  }
}

}  // namespace

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
  Deal(total, pipeline.grid.replicas, slices);
  return slices;
}

std::vector<SliceRange> UpdatedSlices(const ModelPlan& plan, const PipelinePlan& pipeline, int stage) {
  if (!pipeline.shard_optimizer_state) return {SliceRange()};
  std::vector<SliceRange> ranges;
  bool extends = false;  // the last range, up to the slice before
  for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
    const bool mine = slice.replica == pipeline.replica;
    if (mine && !extends) ranges.push_back({.begin = {slice.parameter, slice.slice}});
    if (mine) ranges.back().end = {slice.parameter, slice.slice + 1};
    extends = mine;
  }
  return ranges;
}

std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelinePlan& pipeline) {
  std::vector<std::vector<OwnedSlice>> stages;
  stages.reserve(pipeline.grid.stages);
  for (int stage = 0; stage < pipeline.grid.stages; ++stage) stages.push_back(SlicesOfStage(plan, pipeline, stage));
  return stages;
}

}  // namespace hadal
