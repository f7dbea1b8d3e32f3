#include "tools/plan/layout_memory.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/memory_fit.h"

namespace hadal {
namespace {

int32_t LongestChunk(const PipelineLayout& pipeline) {
  int32_t longest = 0;
  for (size_t g = 0; g + 1 < pipeline.borders.size(); ++g)
    longest = std::max(longest, pipeline.borders[g + 1] - pipeline.borders[g]);
  return longest;
}

}  // namespace

LayoutMemory::LayoutMemory(const ModelPlan& model, const Machine& machine, const Stream& stream, int64_t limit_bytes)
    : model_(model), machine_(machine), stream_(stream), limit_bytes_(limit_bytes) {}

int64_t LayoutMemory::Room(const PipelineLayout& pipeline) const {
  const int64_t driver = machine_.device() == DeviceKind::kCpu ? 0 : DriverBytes(model_, pipeline);
  const int64_t room = machine_.memory_bytes - std::max<int64_t>(0, driver - machine_.reserved_bytes);
  return limit_bytes_ > 0 ? std::min(room, limit_bytes_) : room;
}

int64_t LayoutMemory::Bytes(const PipelineLayout& pipeline, int stage) const {
  return LimitedBytes(RankParts(model_, pipeline, stage, stream_, Purpose::kTraining).layout, machine_.device());
}

FullestStage LayoutMemory::Fullest(const PipelineLayout& pipeline, int64_t enough) const {
  FullestStage fullest;
  for (int stage = 0; stage < pipeline.shape.stages && fullest.bytes <= enough; ++stage) {
    if (const int64_t bytes = Bytes(pipeline, stage); bytes > fullest.bytes) fullest = {stage, bytes};
  }
  return fullest;
}

// The best length for some of the stages is a bound for all of them: once none of the others takes more with it, it is
// the best of all. Few stages are ever the fullest, so that few are laid out with more than one length.
FullestStage LayoutMemory::RecomputeBest(PipelineLayout& pipeline, int64_t enough) const {
  const std::vector<int32_t> lengths = SegmentLengths(2 * LongestChunk(pipeline));
  std::map<int32_t, FullestStage> known;  // by length, of the stages looked at
  for (const int32_t length : lengths) known[length] = {};
  for (int stage = 0;;) {
    for (auto& [length, fullest] : known) {
      pipeline.recompute_every = length;
      if (const int64_t bytes = Bytes(pipeline, stage); bytes > fullest.bytes) fullest = {stage, bytes};
    }
    const auto best = std::ranges::min_element(known, {}, [](const auto& entry) { return entry.second.bytes; });
    pipeline.recompute_every = best->first;
    if (best->second.bytes > enough) return best->second;
    const FullestStage fullest = Fullest(pipeline);
    if (fullest.bytes <= best->second.bytes) return best->second;
    stage = fullest.stage;
  }
}

}  // namespace hadal
