#include "pipeline/slice_ownership.h"

#include <algorithm>

namespace hadal {

std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelinePlan& pipeline) {
  std::vector<std::vector<OwnedSlice>> stages(pipeline.grid.stages);
  std::vector<int64_t> total(pipeline.grid.stages, 0);
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    const int stage = pipeline.OwnerOf(plan, p);
    const int64_t elements = plan.parameters[p].elements();
    for (int64_t slice = 0; slice < SliceCount(plan.parameters[p]); ++slice) {
      stages[stage].push_back({p, slice, std::min(kSliceElements, elements - slice * kSliceElements)});
    }
    total[stage] += elements;
  }
  for (int stage = 0; stage < pipeline.grid.stages; ++stage) {
    int64_t before = 0;
    for (OwnedSlice& slice : stages[stage]) {
      slice.replica = static_cast<int>(pipeline.grid.replicas * (2 * before + slice.elements) / (2 * total[stage]));
      before += slice.elements;
    }
  }
  return stages;
}

}  // namespace hadal
