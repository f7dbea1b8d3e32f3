#include "pipeline/engine/memory_fit.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/process_grid.h"
#include "pipeline/layout/recompute_plan.h"
#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/schedule_replay.h"
#include "runtime/math.h"
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

absl::StatusOr<PipelineLayout> MakeLayout(const Fit& fit, const PipelineOptions& options, int rank) {
  return MakePipelineLayout(fit.plan, fit.batch, options, fit.ranks, rank, fit.resources);
}

absl::StatusOr<Fullest> FullestRank(const Fit& fit, const PipelineLayout& pipeline) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<ArenaLayout> layouts, TrainingLayouts(fit.plan, pipeline, fit.stream));
  Fullest fullest;
  for (int r = 0; r < fit.ranks; ++r) {
    if (const int64_t bytes = LimitedBytes(layouts[r], fit.stream.kind()); bytes > fullest.bytes) fullest = {r, bytes};
  }
  return fullest;
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
    const Fit tried{shallower, fit.batch, fit.ranks, fit.resources, fit.stream};
    const absl::StatusOr<PipelineLayout> pipeline = MakeLayout(tried, options, /*rank=*/0);
    return pipeline.ok() ? FullestRank(tried, *pipeline).value().bytes : 0;
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

// `fullest`: of the rank that does not fit; `nearest`: the fewest bytes with recompute_auto.
absl::Status DoesNotFit(const Fit& fit, const PipelineOptions& options, const Fullest& fullest, int64_t nearest) {
  return ResourceExhaustedError(
      "rank ", fullest.rank, " needs ", InWords(fullest.bytes), ", but the limit is ", fit.limit(),
      " bytes (pipeline.memory_limit_bytes, or where that is 0 ",
      fit.stream.kind() == DeviceKind::kCpu ? "a rank's share of what its host has free"
                                            : "its share of what its GPU has free, less what the driver takes",
      "). Nearest: pipeline.recompute_auto = true needs ",
      nearest <= fit.limit() ? absl::StrCat(InWords(nearest), ", which fits.")
                             : absl::StrCat("at least ", InWords(nearest),
                                            ", which does not fit either: use more ranks or smaller micro-batches.",
                                            LargestDepth(fit, options)),
      fit.batch.sum_groups > options.replicas ? " More pipeline.replicas keep fewer group sums (batch.sum_groups)."
                                              : "");
}

// What a stage recomputes, and its bytes.
struct StageFit {
  RecomputeChoice choice;
  int64_t bytes = std::numeric_limits<int64_t>::max(), bytes_without = 0;  // without recomputation
};
StageFit FitStage(const ModelPlan& plan, int64_t limit_bytes, const Stream& stream, int stage,
                  PipelineLayout& pipeline) {
  constexpr int kTries = 4;  // the arena may need other bytes than a choice counts
  const RecomputeGraph graph = MakeRecomputeGraph(plan, pipeline, stage);
  StageFit best;
  int64_t room = best.bytes;
  for (int i = 0; i <= kTries; ++i) {
    RecomputeChoice tried = ChooseRecompute(graph, room);
    SetRecompute(plan, tried.runs, pipeline);
    const RankParts parts(plan, pipeline, stage, stream, Purpose::kTraining);
    const int64_t bytes = LimitedBytes(parts.layout, stream.kind());
    const int64_t before = std::exchange(room, limit_bytes - (bytes - tried.bytes));
    const bool fits = bytes <= limit_bytes;
    if (i == 0) best.bytes_without = bytes;
    if (best.bytes > limit_bytes ? bytes < best.bytes : fits && tried.cost < best.choice.cost) {
      best = {std::move(tried), bytes, best.bytes_without};
    }
    if (room == before || (fits && room < before)) break;
    if (i + 1 == kTries && best.bytes > limit_bytes) room = 0;
  }
  return best;
}

// A layout whose stages recompute as little as they must.
struct FittedCut {
  PipelineLayout pipeline;
  std::vector<int64_t> bytes;        // [S]
  std::pair<int64_t, double> value;  // less is better: the most bytes of a stage, or the limit; a replay's length
};
FittedCut FitCut(const ModelPlan& plan, int64_t limit_bytes, const Stream& stream, int threads,
                 PipelineLayout pipeline) {
  FittedCut cut{.pipeline = std::move(pipeline)};
  std::vector<StageFit> stages(cut.pipeline.shape.stages);
  std::atomic<int> next = 0;
  auto fit_stages = [&, own = cut.pipeline]() mutable {
    for (int s = next++; s < std::ssize(stages); s = next++) stages[s] = FitStage(plan, limit_bytes, stream, s, own);
  };
  std::vector<std::future<void>> others(std::min<size_t>(stages.size(), threads) - 1);
  for (std::future<void>& other : others) other = std::async(std::launch::async, fit_stages);
  fit_stages();
  for (std::future<void>& other : others) other.get();
  std::vector<RecomputeRun> runs;
  RecomputeFit fit;
  for (const auto& [choice, bytes, bytes_without] : stages) {
    fit.bytes_without.push_back(bytes_without);
    if (choice.cost > 0) fit.gap = std::max(fit.gap, 1 - choice.lower_bound / choice.cost);
    runs.insert(runs.end(), choice.runs.begin(), choice.runs.end());
    cut.bytes.push_back(bytes);
  }
  SetRecompute(plan, std::move(runs), cut.pipeline);
  cut.pipeline.recompute_fit = std::move(fit);
  const Replay replay = ReplaySchedule(cut.pipeline.programs, cut.pipeline.shape, CostsOfChunks(cut.pipeline),
                                       {.outstanding_sends = cut.pipeline.outstanding_sends})
                            .value();
  cut.pipeline.analytic_bubble = replay.BubbleFraction();
  cut.value = {std::max(limit_bytes, std::ranges::max(cut.bytes)), replay.makespan_seconds};
  return cut;
}

// The borders of the model cut anew. A stage that lacks memory costs in proportion more, and each by `of_way` times the
// share of a step that the first micro-batch needs to reach it.
absl::StatusOr<std::vector<int32_t>> CutAgain(const ModelPlan& plan, int64_t limit_bytes, double of_way,
                                              const FittedCut& cut) {
  const ScheduleShape& shape = cut.pipeline.shape;
  PartitionProblem problem{.stages = shape.global_chunks(), .cost = cut.pipeline.costs};
  const double before = SplitsBackward(cut.pipeline.schedule) ? 1.0 / 3 : 1;  // of a stage's work
  for (int32_t s = 0; s < std::ssize(problem.cost); ++s) {
    const int stage = cut.pipeline.RankOfSublayer(s);
    const double lack = static_cast<double>(cut.bytes[stage]) / static_cast<double>(limit_bytes);
    problem.cost[s] *= (cut.pipeline.recomputed[s] ? 4 : 3) * std::max(1.0, lack) *
                       Pow(1 + of_way * before / (shape.chunks * shape.micro_batches), stage);
    problem.cut_allowed_before.push_back(plan.sublayers[s].cut_before != 0);
  }
  return MakePartition(problem);
}

}  // namespace

int64_t LimitedBytes(const ArenaLayout& layout, DeviceKind kind) {
  return kind == DeviceKind::kCpu ? layout.total_bytes() : layout.device_bytes() + cuda::OwnMemory::kDeviceBytes;
}

FullestStage RecomputeToFit(const ModelPlan& plan, int64_t limit_bytes, const Stream& stream, PipelineLayout& pipeline,
                            const LayoutOfBorders& make, int threads) {
  constexpr int kRounds = 4;
  FittedCut best = FitCut(plan, limit_bytes, stream, threads, std::move(pipeline)), tried = best;
  const auto try_cut = [&](const std::vector<int32_t>& borders) {
    absl::StatusOr<PipelineLayout> cut = make(borders);
    if (!cut.ok()) return;
    tried = FitCut(plan, limit_bytes, stream, threads, *std::move(cut));
    if (tried.value < best.value) best = tried;
  };
  for (int round = 0; make && round < kRounds; ++round) {
    const absl::StatusOr<std::vector<int32_t>> borders = CutAgain(plan, limit_bytes, 1.0 * round / kRounds, tried);
    if (!borders.ok() || *borders == tried.pipeline.borders) break;
    try_cut(*borders);
  }
  const int pieces = best.pipeline.shape.global_chunks();
  if (make && std::ssize(plan.sublayers) <= kExactCutSublayers && pieces <= kExactCutPieces) {
    std::vector<int32_t> borders = best.pipeline.borders;
    std::iota(borders.begin(), borders.end() - 1, 0);
    for (int i = 1; i > 0;) {
      try_cut(borders);
      for (i = pieces - 1; i > 0 && borders[i] + 1 == borders[i + 1];) --i;
      std::iota(borders.begin() + i, borders.end() - 1, borders[i] + 1);
    }
  }
  pipeline = std::move(best.pipeline);
  const auto fullest = std::ranges::max_element(best.bytes);
  return {static_cast<int>(fullest - best.bytes.begin()), *fullest,
          std::accumulate(best.bytes.begin(), best.bytes.end(), int64_t{0})};
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
  const Fit fit{plan, batch, ranks, resources, stream};
  if (options.recompute_auto && fit.limit() == 0) {
    return InvalidArgumentError(
        "pipeline.recompute_auto fits what a host has free when training starts, which a plan does not know; set "
        "pipeline.memory_limit_bytes.");
  }
  PipelineOptions fitting = options;
  if (options.recompute_auto) fitting.recompute_every = 0;
  HADAL_ASSIGN_OR_RETURN(PipelineLayout pipeline, MakeLayout(fit, fitting, rank));
  if (fit.limit() == 0) return pipeline;
  HADAL_ASSIGN_OR_RETURN(const Fullest fullest, FullestRank(fit, pipeline));
  if (fullest.bytes <= fit.limit()) return pipeline;
  fitting.recompute_every = 1;
  HADAL_ASSIGN_OR_RETURN(PipelineLayout chosen, MakeLayout(fit, fitting, /*rank=*/0));
  const auto make = [&](const std::vector<int32_t>& borders) {
    PipelineOptions cut = fitting;
    cut.split.assign(borders.begin() + 1, borders.end() - 1);
    return MakeLayout(fit, cut, /*rank=*/0);
  };
  Fullest nearest{.bytes = fit.limit()};
  for (int64_t limit = fit.limit(), i = 0; i < 2 && nearest.bytes >= fit.limit(); ++i) {
    RecomputeToFit(plan, limit, stream, chosen, options.split.empty() ? LayoutOfBorders(make) : nullptr);
    HADAL_ASSIGN_OR_RETURN(nearest, FullestRank(fit, chosen));
    limit -= nearest.bytes - fit.limit();  // other replicas may update more slices
  }
  if (!options.recompute_auto || nearest.bytes > fit.limit()) return DoesNotFit(fit, fitting, fullest, nearest.bytes);
  return LayoutOfReplica(chosen, pipeline.replica);
}

}  // namespace hadal
