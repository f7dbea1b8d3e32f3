// Finds a pipeline layout that fits a memory limit, from the same byte counts with which the arenas are allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace hadal {

// Returns the arena layout of every rank of a training run, by world rank: [stages · replicas]. `stream`: may be
// Stream::ForLayouts, which needs no device.
absl::StatusOr<std::vector<ArenaLayout>> TrainingLayouts(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                         const Stream& stream);

// Returns the bytes of a rank to compare with its memory limit: on the CPU the whole arena; on a device the arena's
// device part and hadal's other device memory (kernels/cuda_host/own_memory.h).
int64_t LimitedBytes(const ArenaLayout& layout, DeviceKind kind);

struct FullestStage {
  int stage = 0;
  int64_t bytes = 0;
  int64_t all_bytes = 0;  // of all stages
};
// MakePipelineLayout with a cut at these borders.
using LayoutOfBorders = std::function<absl::StatusOr<PipelineLayout>(const std::vector<int32_t>& borders)>;
inline constexpr int kExactCutSublayers = 16, kExactCutPieces = 3;
// Sets which sublayers each stage of replica pipeline.replica recomputes: the least with which its LimitedBytes are at
// most `limit_bytes` (recompute_plan.h); if there is no such plan, that with the fewest bytes. Returns the stage that
// then has the most bytes. With `make` it also moves the cuts between stages: in rounds, the model is cut anew with the
// costs of what is repeated; up to kExactCutSublayers, embeddings and head counted, and kExactCutPieces, all cuts are
// tried. The layout is kept whose fullest stage lacks least, then whose step is the shortest by replay (CostsOfChunks).
// `threads`: that compute stages in parallel. REQUIRES: as SetRecompute.
FullestStage RecomputeToFit(const ModelPlan& plan, int64_t limit_bytes, const Stream& stream, PipelineLayout& pipeline,
                            const LayoutOfBorders& make = nullptr, int threads = 1);

// The largest number of NCCL connections of any rank (exchange/process_grid.h); 0 if messages go through the host.
int NcclConnections(const ModelPlan& plan, const PipelineLayout& pipeline);

// The bytes of device memory that a rank leaves free for the driver and its libraries, NCCL included if it is used; the
// same for all ranks (kernels/cuda_host/driver_memory.h). A rank fits a device that has LimitedBytes + DriverBytes of
// free memory.
int64_t DriverBytes(const ModelPlan& plan, const PipelineLayout& pipeline);

// Returns MakePipelineLayout's layout for world rank `rank` of `ranks`, if each rank's LimitedBytes are at most
// resources.memory_limit_bytes (0: no limit). If options.recompute_auto is set, nothing is recomputed if that fits;
// else RecomputeToFit chooses, without options.split also the cut. Apart from `replica` the result is the same on every
// rank.
// Errors: ResourceExhausted, naming the fullest rank, its bytes, the limit and the fewest bytes with recompute_auto; if
// these do not fit either, and layers of the model read a combination of the outputs of all layers before them
// (ModelPlan::Combines), also the largest depth that fits with an even split. InvalidArgument for recompute_auto
// without a limit. Those of MakePipelineLayout.
absl::StatusOr<PipelineLayout> MakeFittingLayout(const ModelPlan& plan, const BatchOptions& batch,
                                                 const PipelineOptions& options, int ranks, int rank,
                                                 const RankResources& resources, const Stream& stream);

}  // namespace hadal
