// Chooses which sublayers of a rank are recomputed: the least work that is repeated, of all plans whose bytes fit.
//
// Plans: a rank's sublayers are cut into segments, within each stack of each chunk. A segment is kept (its saved bytes
// for each live micro-batch) or recomputed (its cost is repeated); neighbouring kept segments are one. Recomputed
// segments have one of kSegmentLengths. Each segment's input is kept for each live micro-batch. One buffer has room for
// the largest recomputed segment; where a chunk's backward is in two halves (stage/chunk.h), segments share less of it.
//
// How: a plan is a way through a graph whose steps are segments. For each size of the buffer and a price λ a byte, the
// way of least cost + λ·bytes gives a lower bound of the cost within the limit (Lagrange); λ is the price whose bound
// is highest. A first plan begins as the cheapest way on one side of λ and ends as that on the other side. Then all
// ways whose bound is below its cost (with more than kExactSegments segments: below cost / 1.01) are followed at
// once; if at a node too many remain, only some are, and the bound is that of λ.
// Units: cost in multiply-adds of a micro-batch, added in double in the order of the sublayers. Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/recompute_run.h"
#include "pipeline/schedule/schedule_replay.h"

namespace hadal {

inline constexpr int32_t kSegmentLengths[] = {1, 2, 5, 10, 20, 50};
inline constexpr int32_t kExactSegments = 64;  // up to these the choice is exact, unless too many ways remain

// A segment as a step to a later node. Bytes of all live micro-batches: its input and what is kept.
struct RecomputeStep {
  int32_t to = 0;
  int32_t length = 0;  // of RecomputeRun
  double cost = 0;     // what is repeated of a micro-batch
  int64_t bytes = 0;
  int64_t buffer_bytes = 0;  // of the buffer
};
// Nodes are places between a rank's shortest segments: those of length 1, or more sublayers where no
// cut is legal. Node 2i: in front of the i-th one, behind a recomputed one or none; 2i + 1: in front of the i-th one,
// behind a kept one. The last node: behind all.
struct RecomputeGraph {
  std::vector<int32_t> sublayers;                 // the first of each shortest segment
  std::vector<std::vector<RecomputeStep>> steps;  // from each node
  std::vector<int64_t> buffers;                   // the different RecomputeStep::buffer_bytes, ascending
};
// The segments of a rank of a layout, whatever the layout recomputes.
RecomputeGraph MakeRecomputeGraph(const ModelPlan& plan, const PipelineLayout& pipeline, int rank);

// The costs of a layout's replay, of what it recomputes too, in multiply-adds in place of seconds.
ReplayCosts CostsOfChunks(const PipelineLayout& pipeline);

struct RecomputeChoice {
  std::vector<RecomputeRun> runs;
  double cost = 0;         // what is repeated of a micro-batch
  double lower_bound = 0;  // of the cost of any plan that fits; infinite if none does
  int64_t bytes = 0;
};
// Returns the plan with the least cost within `limit_bytes`; if none fits, the one with the fewest bytes.
RecomputeChoice ChooseRecompute(const RecomputeGraph& graph, int64_t limit_bytes);

}  // namespace hadal
