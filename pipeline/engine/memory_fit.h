// The layout of a pipeline that fits a memory limit, from the same byte counts that the arenas are allocated with.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace hadal {

// The layout of every rank's arena when training, replicas of the pipeline included.  [S·R], by world rank
// `stream`: may be one for layouts alone.
absl::StatusOr<std::vector<ArenaLayout>> TrainingLayouts(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                         const Stream& stream);

// The bytes of a rank that its memory limit is compared with: on the CPU the arena; on a device what lies there, the
// arena's part and what the device takes beside it (kernels/cuda_host/own_memory.h).
int64_t LimitedBytes(const ArenaLayout& layout, DeviceKind kind);

// The lengths of recomputation's segments that are worth trying for so many sublayers, ascending: powers of two and
// their halves between.
std::vector<int32_t> SegmentLengths(int32_t sublayers);

// The most connections by NCCL that a rank has (exchange/process_grid.h); 0 where ranks exchange through the host.
int NcclConnections(const ModelPlan& plan, const PipelineLayout& pipeline);

// What a rank leaves free of its device for the driver and its libraries, NCCL's connections included where ranks
// exchange by it; the same for all ranks (kernels/cuda_host/driver_memory.h). A device holds a rank whose LimitedBytes
// and these it has room for.
int64_t DriverBytes(const ModelPlan& plan, const PipelineLayout& pipeline);

// MakePipelineLayout's result, of which every rank fits resources.memory_limit_bytes (0: nothing is compared). With
// options.recompute_auto its recompute_every is the smallest-recompute choice that fits (0 where no
// recomputation is needed, else the k with the fewest bytes), without it options'. A pure function: every rank decides
// the same.
// Errors: ResourceExhausted, naming the fullest rank, its bytes, the limit, and the nearest settings that do fit, of a
// model whose layers are combined also the largest depth that does; InvalidArgument for recompute_auto without a
// limit; MakePipelineLayout's.
absl::StatusOr<PipelineLayout> MakeFittingLayout(const ModelPlan& plan, const BatchOptions& batch,
                                                 const PipelineOptions& options, int ranks, int rank,
                                                 const RankResources& resources, const Stream& stream);

}  // namespace hadal
