// LayoutMemory computes what the ranks of a planned pipeline take on a machine's devices: the bytes of the arenas, laid
// out as training lays them out (engine.h), stage by stage, so that a search can stop at the first rank that does
// not fit.
//
// A device holds a rank if LimitedBytes (memory_fit.h) are at most
//   memory_gib − max(reserved_gib, DriverBytes)      and pipeline.memory_limit_bytes, if set
// Threads: const, pure. Time: 4 µs a sublayer of a stage.
#pragma once

#include <cstdint>
#include <limits>

#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/stream.h"
#include "tools/plan/machine.h"

namespace hadal {

struct FullestStage {
  int stage = 0;
  int64_t bytes = 0;
};

class LayoutMemory {
 public:
  // `model` and `machine` must outlive the object. `stream`: of the machine's kind of device; may be one for layouts
  // alone. `limit_bytes`: pipeline.memory_limit_bytes.
  LayoutMemory(const ModelPlan& model, const Machine& machine, const Stream& stream, int64_t limit_bytes);

  // The most that a rank of this plan may take.
  int64_t Room(const PipelineLayout& pipeline) const;
  // The stage of the layout's own replica that takes the most, or the first that takes more than `enough`.
  FullestStage Fullest(const PipelineLayout& pipeline, int64_t enough = std::numeric_limits<int64_t>::max()) const;
  // Sets pipeline.recompute_every to the segment length with which the fullest stage of its replica takes the fewest
  // bytes, and returns that stage. If with every length a stage takes more than `enough`, returns such a stage.
  FullestStage RecomputeBest(PipelineLayout& pipeline, int64_t enough) const;

 private:
  int64_t Bytes(const PipelineLayout& pipeline, int stage) const;

  const ModelPlan& model_;
  const Machine& machine_;
  const Stream stream_;
  const int64_t limit_bytes_;
};

}  // namespace hadal
