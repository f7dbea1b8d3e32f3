#include "tools/plan/layout_candidates.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "pipeline/layout/sum_tree.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// The same step in micro-batches of other sizes.
std::vector<BatchOptions> Batches(const ModelOptions& model, const BatchOptions& batch, bool kept) {
  constexpr int kMostHalvings = 3;
  constexpr int64_t kMostMicroBatches = 65536, kMostTokens = int64_t{1} << 20;  // as in configs/run.proto
  std::vector<BatchOptions> batches{batch};
  const int32_t source = model.translates() ? batch.source_tokens : batch.target_tokens;
  const auto scaled = [&](int32_t more, int32_t fewer) {
    BatchOptions other = batch;
    other.micro_batches = batch.micro_batches * more / fewer;
    if (model.translates()) other.source_tokens = batch.source_tokens * fewer / more;
    other.target_tokens = batch.target_tokens * fewer / more;
    return other;
  };
  const int32_t least = std::min({model.max_positions, source, batch.target_tokens});
  for (int i = 1; !kept && i <= kMostHalvings; ++i) {
    const int32_t factor = 1 << i;
    if (source % factor == 0 && batch.target_tokens % factor == 0 && source / factor >= least &&
        batch.target_tokens / factor >= least && int64_t{batch.micro_batches} * factor <= kMostMicroBatches) {
      batches.push_back(scaled(factor, 1));
    }
    const int64_t longest = std::max(source, batch.target_tokens);
    if (batch.micro_batches % factor == 0 && longest * factor <= kMostTokens) batches.push_back(scaled(1, factor));
  }
  return batches;
}

int64_t LegalCuts(const ModelPlan& model) {
  return std::ranges::count_if(model.sublayers, [](const SublayerRecord& s) { return s.cut_before != 0; });
}

// `value` if the field is kept, else all `values`.
template <typename T>
std::vector<T> Choices(bool kept, T value, std::vector<T> values) {
  return kept ? std::vector<T>{value} : values;
}

std::vector<GridShape> ElasticGrids(const TrainOptions& options, int most_ranks, int64_t cuts) {
  constexpr int kAllPowers = 1 << 16;
  const int groups = options.batch.sum_groups > 0 ? options.batch.sum_groups : kAllPowers;
  std::vector<GridShape> grids;
  for (int replicas = 1; replicas <= most_ranks; ++replicas) {
    if (!MayDivide(groups, replicas)) continue;
    const int most = static_cast<int>(std::min<int64_t>(most_ranks / replicas, cuts));
    for (int stages = most; stages > 0; stages -= std::max(1, most / 16)) {
      grids.push_back({stages, replicas, options.pipeline.placement});
    }
  }
  return grids;
}

// Pairs of stages and replicas.
std::vector<GridShape> Grids(const PipelineOptions& asked, const Machine& machine, const KeptFields& kept) {
  std::vector<GridShape> grids;
  const int node = machine.devices_per_node;
  for (int replicas = 1; replicas <= machine.devices(); ++replicas) {
    const GridShape grid{machine.devices() / replicas, replicas, asked.placement};
    if (grid.ranks() != machine.devices()) continue;
    if (kept.stages && grid.stages != asked.stages) continue;
    if (kept.replicas && grid.replicas != asked.replicas) continue;
    const int together = asked.placement == Placement::kReplicasTogether ? grid.replicas : grid.stages;
    if (!kept.stages && !kept.replicas && together % node != 0 && node % together != 0) continue;
    grids.push_back(grid);
  }
  return grids;
}

// Pairs of chunks and schedule.
std::vector<std::pair<int, ScheduleKind>> Schedules(const PipelineOptions& asked, const KeptFields& kept) {
  std::vector<std::pair<int, ScheduleKind>> pairs;
  for (const int chunks : Choices(kept.chunks, asked.chunks, {1, 2, 3, 4, 6, 8})) {
    for (const ScheduleKind kind : Choices(kept.schedule, asked.schedule, AllScheduleKinds())) {
      const bool both = kept.chunks && kept.schedule;
      const bool interleaves = RunsSeveralChunks(kind) && kind != ScheduleKind::kGpipe;
      if (both || interleaves == (chunks > 1)) pairs.emplace_back(chunks, kind);
    }
  }
  return pairs;
}

bool CanBeCut(const PipelineOptions& asked, const GridShape& grid, int chunks, int64_t cuts) {
  const int64_t pieces = int64_t{grid.stages} * chunks;
  return asked.split.empty() ? pieces <= cuts : pieces == std::ssize(asked.split) + 1;
}

}  // namespace

std::vector<LayoutPrediction> LayoutCandidates(const ModelPlan& model, const TrainOptions& options,
                                               const Machine& machine, const KeptFields& kept) {
  const PipelineOptions& asked = options.pipeline;
  std::vector<LayoutPrediction> candidates;
  const int64_t cuts = LegalCuts(model);
  const std::vector<GridShape> grids =
      kept.most_ranks > 0 ? ElasticGrids(options, kept.most_ranks, cuts) : Grids(asked, machine, kept);
  for (const BatchOptions& batch : Batches(model.options, options.batch, kept.batch)) {
    for (const GridShape& grid : grids) {
      if (grid.replicas > batch.micro_batches) continue;
      for (const auto& [chunks, kind] : Schedules(asked, kept)) {
        if (!CanBeCut(asked, grid, chunks, cuts) || (chunks > 1 && grid.stages == 1 && !kept.chunks)) continue;
        if (SplitsBackward(kind) && grid.stages == 1 && !kept.schedule) continue;
        for (const bool shard : Choices(kept.optimizer_sharding, asked.shard_optimizer_state, {true, false})) {
          if (!shard && grid.replicas == 1 && !kept.optimizer_sharding) continue;
          // The others keep several weight halves only if nothing is recomputed.
          const std::vector<int32_t> lengths =
              WithOnePending(kind) == kind ? std::vector{kAnyLength} : std::vector{0, kAnyLength};
          for (const int32_t recompute_every : Choices(kept.recompute_every, asked.recompute_every, lengths)) {
            if (recompute_every != 0 && lengths.size() > 1 && !kept.schedule) continue;
            LayoutPrediction layout{.batch = batch, .pipeline = asked};
            layout.pipeline.stages = grid.stages;
            layout.pipeline.replicas = grid.replicas;
            layout.pipeline.chunks = chunks;
            layout.pipeline.schedule = kind;
            layout.pipeline.shard_optimizer_state = shard;
            layout.pipeline.recompute_every = recompute_every;
            layout.pipeline.recompute_auto = false;
            candidates.push_back(std::move(layout));
          }
        }
      }
    }
  }
  return candidates;
}

std::string KeptText(bool KeptFields::*field, const TrainOptions& options) {
  const PipelineOptions& pipeline = options.pipeline;
  if (field == &KeptFields::stages) return absl::StrCat("pipeline.stages = ", pipeline.stages);
  if (field == &KeptFields::replicas) return absl::StrCat("pipeline.replicas = ", pipeline.replicas);
  if (field == &KeptFields::chunks) return absl::StrCat("pipeline.chunks = ", pipeline.chunks);
  if (field == &KeptFields::schedule) return absl::StrCat("pipeline.schedule = ", ToString(pipeline.schedule));
  if (field == &KeptFields::recompute_every) {
    return absl::StrCat("pipeline.recompute_every = ", pipeline.recompute_every);
  }
  if (field == &KeptFields::optimizer_sharding) {
    return absl::StrCat("pipeline.optimizer_sharding = ", pipeline.shard_optimizer_state ? "state" : "none");
  }
  HADAL_CHECK(field == &KeptFields::batch);
  return absl::StrCat("batch.micro_batches = ", options.batch.micro_batches,
                      ", batch.target_tokens = ", options.batch.target_tokens);
}

std::string KeptText(const KeptFields& kept, const TrainOptions& options) {
  std::vector<std::string> texts;
  for (bool KeptFields::*field : KeptFields::kAll) {
    if (kept.*field) texts.push_back(KeptText(field, options));
  }
  if (kept.most_ranks > 0) texts.push_back(absl::StrCat("batch.sum_groups = ", options.batch.sum_groups));
  if (!options.pipeline.split.empty()) {
    texts.push_back(absl::StrCat("pipeline.split = [", absl::StrJoin(options.pipeline.split, ", "), "]"));
  }
  return absl::StrJoin(texts, ", ");
}

}  // namespace hadal
