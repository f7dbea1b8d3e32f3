#include "pipeline/engine/memory_fit.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/process_grid.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// What is to fit, but for the options that are tried.
struct Fit {
  const ModelPlan& plan;
  const BatchOptions& batch;
  int ranks = 1;
  const RankResources& resources;
  const Stream& stream;

  int64_t limit() const { return resources.memory_limit_bytes; }
};

struct Fullest {
  int rank = 0;
  int64_t bytes = 0;
};

absl::StatusOr<Fullest> FullestRank(const Fit& fit, const PipelineOptions& options) {
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                         MakePipelineLayout(fit.plan, fit.batch, options, fit.ranks, /*rank=*/0, fit.resources));
  HADAL_ASSIGN_OR_RETURN(const std::vector<ArenaLayout> layouts, TrainingLayouts(fit.plan, pipeline, fit.stream));
  Fullest fullest;
  for (int r = 0; r < fit.ranks; ++r) {
    if (const int64_t bytes = LimitedBytes(layouts[r], fit.stream.kind()); bytes > fullest.bytes) fullest = {r, bytes};
  }
  return fullest;
}

struct Choice {
  int32_t recompute_every = 0;
  Fullest fullest;
};

// The segment length whose fullest rank has the fewest bytes.
absl::StatusOr<Choice> SmallestByRecomputing(const Fit& fit, PipelineOptions options) {
  std::optional<Choice> best;
  for (const int32_t k : SegmentLengths(static_cast<int32_t>(fit.plan.sublayers.size()))) {
    options.recompute_every = k;
    HADAL_ASSIGN_OR_RETURN(const Fullest fullest, FullestRank(fit, options));
    if (!best || fullest.bytes < best->fullest.bytes) best = Choice{k, fullest};
  }
  return *best;
}

// The model with its deeper stack cut to `layers` layers and the other in proportion.
ModelPlan Shallower(const ModelPlan& plan, int32_t layers) {
  ModelOptions options = plan.options;
  const int32_t deepest = std::max(options.encoder_layers, options.decoder_layers);
  for (int32_t* stack : {&options.encoder_layers, &options.decoder_layers}) {
    *stack = static_cast<int32_t>((int64_t{*stack} * layers + deepest - 1) / deepest);
  }
  ModelPlan shallower = ModelPlan::Make(options);
  shallower.compute_storage = plan.compute_storage;
  shallower.relu_masks = plan.relu_masks;
  shallower.muon_steps = plan.muon_steps;
  return shallower;
}

// In words, the largest depth that fits with these settings and an even split; memory is taken to grow with the depth.
// For models whose layers are combined: there no number of stages or segments makes the history smaller.
std::string LargestDepth(const Fit& fit, PipelineOptions options) {
  const ModelPlan& plan = fit.plan;
  if (!plan.Combines(Stack::kEncoder) && !plan.Combines(Stack::kDecoder)) return "";
  // Not this depth as it is cut, but perhaps with an even split.
  int32_t fitting = 0, beyond = std::max(plan.options.encoder_layers, plan.options.decoder_layers);
  if (!options.split.empty()) ++beyond;
  options.split.clear();
  const auto bytes = [&](int32_t layers) {  // 0: too few layers for these ranks
    const ModelPlan shallower = Shallower(plan, layers);
    const absl::StatusOr<Fullest> fullest =
        FullestRank({shallower, fit.batch, fit.ranks, fit.resources, fit.stream}, options);
    return fullest.ok() ? fullest->bytes : 0;
  };
  while (beyond - fitting > 1) {
    const int32_t middle = fitting + (beyond - fitting) / 2;
    (bytes(middle) <= fit.limit() ? fitting : beyond) = middle;
  }
  if (fitting == 0 || bytes(fitting) == 0) return " No depth fits: combined layers keep the outputs of all others.";
  return absl::StrCat(
      " Combined layers keep the outputs of all others: with that and an even split the largest depth that fits is ",
      DepthName(Shallower(plan, fitting).options), ".");
}

std::string InWords(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  const std::string rounded = mib < 1024 ? absl::StrFormat("%.1f MiB", mib) : absl::StrFormat("%.2f GiB", mib / 1024);
  return absl::StrCat(rounded, " (", bytes, " bytes)");
}

// `fullest`: of the rank that does not fit; `nearest`: the best that `options` with other recomputation comes to.
absl::Status DoesNotFit(const Fit& fit, PipelineOptions options, const Fullest& fullest, const Choice& nearest) {
  options.recompute_every = nearest.recompute_every;
  return absl::ResourceExhaustedError(absl::StrCat(
      "rank ", fullest.rank, " needs ", InWords(fullest.bytes), ", but the limit is ", fit.limit(),
      " bytes (pipeline.memory_limit_bytes, or where that is 0 ",
      fit.stream.kind() == DeviceKind::kCpu ? "a rank's share of what its host has free"
                                            : "its share of what its GPU has free, less what the driver takes",
      "). Nearest: pipeline.recompute_every = ", nearest.recompute_every, " needs ", InWords(nearest.fullest.bytes),
      nearest.fullest.bytes <= fit.limit()
          ? ", which fits."
          : absl::StrCat(", which does not fit either: use more ranks or smaller micro-batches.",
                         LargestDepth(fit, options)),
      fit.batch.sum_groups > options.replicas ? " More pipeline.replicas keep fewer group sums (batch.sum_groups)."
                                              : ""));
}

// The recompute_every that fits.
absl::StatusOr<int32_t> FitCheckpointing(const Fit& fit, PipelineOptions options) {
  if (fit.limit() == 0 && !options.recompute_auto) return options.recompute_every;
  if (fit.limit() == 0) {
    return absl::InvalidArgumentError("pipeline.recompute_auto needs pipeline.memory_limit_bytes.");
  }
  if (options.recompute_auto) options.recompute_every = 0;
  HADAL_ASSIGN_OR_RETURN(const Fullest fullest, FullestRank(fit, options));
  if (fullest.bytes <= fit.limit()) return options.recompute_every;
  HADAL_ASSIGN_OR_RETURN(const Choice smallest, SmallestByRecomputing(fit, options));
  if (options.recompute_auto && smallest.fullest.bytes <= fit.limit()) return smallest.recompute_every;
  return DoesNotFit(fit, std::move(options), fullest, smallest);
}

}  // namespace

int64_t LimitedBytes(const ArenaLayout& layout, DeviceKind kind) {
  return kind == DeviceKind::kCpu ? layout.total_bytes() : layout.device_bytes() + cuda::OwnMemory::kDeviceBytes;
}

std::vector<int32_t> SegmentLengths(int32_t sublayers) {
  std::vector<int32_t> lengths;
  for (int32_t k = 1; k < sublayers; k *= 2) {
    lengths.push_back(k);
    if (k >= 2 && k + k / 2 < sublayers) lengths.push_back(k + k / 2);
  }
  return lengths;
}

int NcclConnections(const ModelPlan& plan, const PipelineLayout& pipeline) {
  return pipeline.device_transfers ? MostConnections(TransferGroups(plan, pipeline)) : 0;
}

int64_t DriverBytes(const ModelPlan& plan, const PipelineLayout& pipeline) {
  return cuda::DriverMemory::Bytes(pipeline.graphs, NcclConnections(plan, pipeline));
}

absl::StatusOr<std::vector<ArenaLayout>> TrainingLayouts(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                         const Stream& stream) {
  const GridShape& grid = pipeline.grid;
  std::vector<ArenaLayout> layouts(grid.ranks());
  for (int replica = 0; replica < grid.replicas; ++replica) {
    HADAL_ASSIGN_OR_RETURN(const PipelineLayout own, LayoutOfReplica(pipeline, replica));
    for (int stage = 0; stage < grid.stages; ++stage) {
      layouts[grid.RankOf(stage, replica)] = RankParts(plan, own, stage, stream, Purpose::kTraining).layout;
    }
  }
  return layouts;
}

absl::StatusOr<PipelineLayout> MakeFittingLayout(const ModelPlan& plan, const BatchOptions& batch,
                                                 const PipelineOptions& options, int ranks, int rank,
                                                 const RankResources& resources, const Stream& stream) {
  PipelineOptions fitting = options;
  HADAL_ASSIGN_OR_RETURN(fitting.recompute_every, FitCheckpointing({plan, batch, ranks, resources, stream}, options));
  return MakePipelineLayout(plan, batch, fitting, ranks, rank, resources);
}

}  // namespace hadal
