#include "pipeline/layout/pipeline_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layers/adaptive_bands.h"
#include "layers/speech_front_end.h"
#include "pipeline/layout/decode_capacity.h"
#include "pipeline/layout/recompute_plan.h"
#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/schedule_check.h"
#include "pipeline/schedule/schedule_replay.h"
#include "runtime/arena.h"
#include "runtime/check.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Sublayers of each chunk, from the first sublayer of each chunk but the first.
std::vector<int> CountsOf(const std::vector<int32_t>& split, size_t sublayers) {
  std::vector<int> counts;
  int32_t begin = 0;
  for (const int32_t next : split) {
    counts.push_back(next - begin);
    begin = next;
  }
  counts.push_back(static_cast<int>(sublayers) - begin);
  return counts;
}

// Memory is what the caller checks by laying the stages out; here only time is balanced.
absl::StatusOr<std::vector<int32_t>> CutModel(const ModelPlan& plan, const std::vector<double>& costs,
                                              const ScheduleShape& shape, const std::vector<int32_t>& split) {
  PartitionProblem problem{.stages = shape.stages, .chunks = shape.chunks, .cost = costs};
  for (const SublayerRecord& sublayer : plan.sublayers) problem.cut_allowed_before.push_back(sublayer.cut_before != 0);
  if (split.empty()) return MakePartition(problem);
  if (std::ssize(split) + 1 != problem.pieces()) {
    return InvalidArgumentError("pipeline.split has ", split.size(), " entries; ", shape.stages, " stages of ",
                                shape.chunks, " chunks need ", problem.pieces() - 1);
  }
  return PartitionByCounts(problem, CountsOf(split, costs.size()));
}

// Reading an element of the history from memory takes the time of that many multiply-adds of a product: 23 forward and
// 61 for each of backward's two, measured at width 512 with AVX-512; slower processors have slower memories, too.
constexpr double kCombinedEntryCost = 32;

// Entries of the histories that a sublayer reads whole; where a block's sublayers read them together, its share.
double CombinedEntries(const ModelPlan& plan, int32_t sublayer) {
  const int32_t weights = plan.ParameterOf(sublayer, ParameterRole::kCombinationWeight);
  if (weights >= 0) return static_cast<double>(plan.parameters[weights].elements());
  const SublayerRecord& record = plan.sublayers[sublayer];
  if (record.layer < 0 || !plan.ReadsBlocks(record.stack)) return 0;
  return static_cast<double>(plan.HistoryBefore(sublayer)) / plan.BlockSublayers(record.stack);
}

// That every border's messages can be sent by MPI.
absl::Status CheckMessages(const ModelPlan& plan, const PipelineLayout& pipeline) {
  for (size_t g = 1; g + 1 < pipeline.borders.size(); ++g) {
    const int32_t border = pipeline.borders[g];
    for (const bool gradients : {false, true}) {
      const int64_t bytes = MessageBytes(EdgesInFrontOf(plan, pipeline, static_cast<int>(g)), gradients,
                                         pipeline.capacity, plan.options.d_model);
      if (bytes <= Communicator::kLongestMessageBytes) continue;
      return InvalidArgumentError("the ", gradients ? "gradients" : "activations",
                                  " that cross the border in front of sublayer ", border, " take ", bytes,
                                  " bytes per micro-batch, more than the ", Communicator::kLongestMessageBytes,
                                  " of an MPI message; use fewer tokens per micro-batch (batch.source_tokens, "
                                  "batch.target_tokens) and more of them (batch.micro_batches)");
    }
  }
  return absl::OkStatus();
}

// Stages and replicas from the options and the number of ranks.
absl::StatusOr<GridShape> MakeGrid(const PipelineOptions& options, int ranks) {
  const auto started = absl::StrCat(ranks, ranks == 1 ? " rank was" : " ranks were", " started");
  const int replicas = options.replicas;
  const int64_t asked_ranks = int64_t{options.stages} * replicas;
  if (replicas < 1 || ranks % replicas != 0) {
    return InvalidArgumentError("pipeline.replicas = ", replicas, ", but ", started,
                                ". Ranks are stages x replicas: start a multiple of ", std::max(replicas, 1),
                                " ranks.");
  }
  if (options.stages != 0 && asked_ranks != ranks) {
    const std::string asked =
        replicas == 1 ? absl::StrCat("pipeline.stages = ", options.stages)
                      : absl::StrCat("pipeline.stages = ", options.stages, " x pipeline.replicas = ", replicas);
    return InvalidArgumentError(
        asked, ", but ", started, ". Start `mpirun -n ", asked_ranks,
        "` (--oversubscribe, where there are fewer cores), or leave stages unset to use every rank.");
  }
  return GridShape{.stages = ranks / replicas, .replicas = replicas, .placement = options.placement};
}

// Programs of the layout's own share of micro-batches, checked and timed.
absl::Status MakePrograms(PipelineLayout& pipeline) {
  pipeline.shape.micro_batches = pipeline.share().count;
  HADAL_ASSIGN_OR_RETURN(pipeline.programs, MakeSchedules(pipeline.schedule, pipeline.shape));
  std::vector<int> last;  // micro-batches of groups
  for (const GroupEnd& end : pipeline.group_ends()) last.push_back(end.micro_batch);
  for (RankProgram& program : pipeline.programs) program = EndGroups(program, last);
  // Twice: on the strictest machine (rendezvous), and with the channels' own buffers.
  HADAL_RETURN_IF_ERROR(CheckSchedule(pipeline.programs, pipeline.shape, {.outstanding_sends = 1}).status());
  HADAL_ASSIGN_OR_RETURN(const ScheduleReport report, CheckSchedule(pipeline.programs, pipeline.shape,
                                                                    {.outstanding_sends = pipeline.outstanding_sends}));
  pipeline.peak_live = report.peak_live;
  pipeline.peak_input = report.peak_input;
  pipeline.peak_pending = report.peak_pending;
  HADAL_ASSIGN_OR_RETURN(const Replay replay, ReplaySchedule(pipeline.programs, pipeline.shape, CostsOfChunks(pipeline),
                                                             {.outstanding_sends = pipeline.outstanding_sends}));
  pipeline.analytic_bubble = replay.BubbleFraction();
  return absl::OkStatus();
}

}  // namespace

int64_t MessageBytes(std::span<const Edge> edges, bool gradients, const ActivationCapacity& capacity, int64_t width) {
  int64_t bytes = kMessageHeaderBytes;
  for (const Edge& edge : edges) bytes += EdgeBytes(edge, gradients, capacity, width);
  return ArenaLayout::Aligned(bytes);
}

std::vector<Edge> EdgesInFrontOf(const ModelPlan& plan, const PipelineLayout& pipeline, int global_chunk) {
  const int32_t border = pipeline.borders[global_chunk];
  std::vector<Edge> edges = BorderEdges(plan, border);
  const int before = global_chunk - pipeline.shape.stages;  // the same rank's
  if (before >= 0) edges[0].known = KnownEntries(plan, pipeline.borders[before + 1], border);
  return edges;
}

int64_t KnownInFrontOf(const ModelPlan& plan, const PipelineLayout& pipeline, int global_chunk) {
  const bool crosses = global_chunk > 0 && global_chunk < pipeline.shape.global_chunks();
  return crosses ? EdgesInFrontOf(plan, pipeline, global_chunk)[0].known : 0;
}

Share ShareOf(int count, int replicas, int replica) {
  const auto begin = [&](int64_t r) { return static_cast<int>((r * count + replicas - 1) / replicas); };
  return {begin(replica), begin(replica + 1) - begin(replica)};
}

ActivationCapacity CapacityOf(const ModelOptions& model, const BatchOptions& batch) {
  // An encoder alone reads the target's text.
  const int32_t source_rows = !model.has_encoder()   ? 0
                              : !model.has_decoder() ? batch.target_tokens
                                                     : batch.source_tokens;
  return {.source_rows = source_rows,
          .target_rows = batch.target_tokens,
          .max_length = std::min(model.max_positions, std::max(source_rows, batch.target_tokens))};
}

std::vector<double> SublayerCosts(const ModelPlan& plan, const ActivationCapacity& capacity, double length,
                                  bool with_history) {
  const double d = plan.options.d_model, q = plan.options.query_width(), k = plan.options.key_width();
  const double source = static_cast<double>(capacity.source_rows);
  const double target = static_cast<double>(capacity.target_rows);
  std::vector<double> costs;
  for (const SublayerRecord& sublayer : plan.sublayers) {
    const double rows = sublayer.stack == Stack::kEncoder ? source : target;
    const double seen = plan.KeysSeen(static_cast<int32_t>(costs.size()), length);
    switch (sublayer.kind) {
      // Lookups: charged as one pass over the rows. Speech has convolutions, adaptive input products, too.
      case SublayerKind::kSourceEmbedding:
      case SublayerKind::kTargetEmbedding: {
        const bool convolves = sublayer.kind == SublayerKind::kSourceEmbedding && plan.options.reads_speech();
        const double products = convolves
                                    ? FrontEndProducts(plan.options)
                                    : InputProducts(plan.options, plan.Tables(static_cast<int32_t>(costs.size())));
        costs.push_back(rows * (d + products));
        break;
      }
      case SublayerKind::kSelfAttention:
        costs.push_back(rows * (2 * d * (q + k) + (plan.options.block.attention_gate ? d * q : 0) + 2 * seen * q));
        break;
      case SublayerKind::kCrossAttention:
        costs.push_back(target * (2 * d * q + 2 * seen * q) + source * 2 * d * k);
        break;
      case SublayerKind::kFeedForward:
        costs.push_back(rows * plan.options.feed_forward_products() * d * plan.options.d_ff);
        break;
      case SublayerKind::kOutputHead:
        costs.push_back(rows * HeadProducts(plan.options) * (plan.options.has_decoder() ? 1 : kTypicalMaskedShare));
        break;
    }
    if (!with_history) continue;
    costs.back() += rows * d * kCombinedEntryCost * CombinedEntries(plan, static_cast<int32_t>(costs.size()) - 1);
  }
  return costs;
}

std::vector<int32_t> PipelineLayout::SublayersOf(int rank) const {
  std::vector<int32_t> sublayers;
  for (int c = 0; c < shape.chunks; ++c) {
    for (int32_t s = first_sublayer(rank, c); s < last_sublayer(rank, c); ++s) sublayers.push_back(s);
  }
  return sublayers;
}

int PipelineLayout::RankOfSublayer(int32_t sublayer) const {
  const auto after = std::upper_bound(borders.begin(), borders.end(), sublayer);
  return shape.RankOf(static_cast<int>(after - borders.begin()) - 1);
}

int PipelineLayout::OwnerOf(const ModelPlan& plan, int32_t parameter) const {
  return RankOfSublayer(plan.parameters[parameter].sublayer);
}

absl::StatusOr<PipelineLayout> MakePipelineLayout(const ModelPlan& plan, const BatchOptions& batch,
                                                  const PipelineOptions& options, int ranks, int rank,
                                                  const RankResources& resources) {
  PipelineLayout result;
  result.capacity = CapacityOf(plan.options, batch);
  result.costs = SublayerCosts(plan, result.capacity, kTypicalSentenceRows);
  const absl::StatusOr<GridShape> grid = MakeGrid(options, ranks);
  if (!grid.ok() && options.stages > 0) {  // more ranks do not help where the model cannot be cut so often
    const ScheduleShape asked{.stages = options.stages, .chunks = options.chunks};
    HADAL_RETURN_IF_ERROR(CutModel(plan, result.costs, asked, options.split).status());
  }
  HADAL_RETURN_IF_ERROR(grid.status());
  result.grid = *grid;
  if (batch.micro_batches < result.grid.replicas) {
    return InvalidArgumentError(
        "batch.micro_batches = ", batch.micro_batches, " is less than pipeline.replicas = ", result.grid.replicas,
        ": every replica needs a micro-batch of every step. Use more, smaller micro-batches, or fewer replicas.");
  }
  result.replica = result.grid.ReplicaOf(rank);
  result.shard_optimizer_state = options.shard_optimizer_state;
  result.step_micro_batches = batch.micro_batches;
  result.sum_groups = batch.sum_groups == 0 ? result.grid.replicas : batch.sum_groups;
  if (!MayDivide(result.sum_groups, result.grid.replicas)) {
    return InvalidArgumentError(
        "batch.sum_groups = ", result.sum_groups, " with pipeline.replicas = ", result.grid.replicas,
        ": a replica's groups must be a power of two (1, 2, 4 …). Use other replicas, or another batch.sum_groups.");
  }
  result.shape = {.stages = result.grid.stages,
                  .chunks = options.chunks,
                  .micro_batches = result.share().count,
                  .free_links = resources.free_links};
  std::vector<RecomputeRun> recompute = options.recompute;
  if (recompute.empty() && options.recompute_every > 0) recompute = {{.first = 0, .length = options.recompute_every}};
  result.schedule = LongestLength(recompute) > 0 ? WithOnePending(options.schedule) : options.schedule;
  result.outstanding_sends = options.outstanding_sends;
  result.device_transfers = resources.device_transfers;
  result.save_buffer_bytes = options.save_buffer_bytes;
  SetRecompute(plan, std::move(recompute), result);
  result.graphs = options.graphs == GraphMode::kAuto;
  result.overlap_weight_gradients = options.overlap_weight_gradients;
  result.bucket_rows = options.bucket_rows;
  HADAL_ASSIGN_OR_RETURN(result.borders, CutModel(plan, result.costs, result.shape, options.split));
  if (NumberOfChannels(result.shape) > kFirstMessageTag) {
    return InvalidArgumentError("pipeline.chunks = ", result.shape.chunks, " on ", result.shape.stages,
                                " stages needs ", NumberOfChannels(result.shape), " message tags of ", kFirstMessageTag,
                                "; use fewer chunks");
  }
  HADAL_RETURN_IF_ERROR(MakePrograms(result));
  if (resources.trains && !result.device_transfers) HADAL_RETURN_IF_ERROR(CheckMessages(plan, result));
  if (options.decoder && plan.options.has_encoder()) {
    result.decoder = options.decoder;
    result.decoder->graphs = result.graphs;
    result.decoder->longest_source = static_cast<int32_t>(
        std::min<int64_t>({options.decoder->longest_source, result.capacity.max_length, result.capacity.source_rows}));
    HADAL_ASSIGN_OR_RETURN(result.decode_capacity, MakeDecodeCapacity(plan, result, *result.decoder));
  }
  return result;
}

void SetRecompute(const ModelPlan& plan, std::vector<RecomputeRun> runs, PipelineLayout& pipeline) {
  HADAL_CHECK(LongestLength(runs) == 0 || pipeline.schedule == WithOnePending(pipeline.schedule));
  std::ranges::sort(runs, {}, &RecomputeRun::first);
  const auto same = [](const RecomputeRun& a, const RecomputeRun& b) { return a.length == b.length; };
  runs.erase(std::unique(runs.begin(), runs.end(), same), runs.end());
  pipeline.recompute = std::move(runs);
  pipeline.recomputed.clear();
  for (const SublayerRecord& record : plan.sublayers) {
    const auto sublayer = static_cast<int32_t>(pipeline.recomputed.size());
    pipeline.recomputed.push_back(record.layer >= 0 && LengthAt(pipeline.recompute, sublayer).length > 0);
  }
}

absl::StatusOr<PipelineLayout> LayoutOfReplica(PipelineLayout pipeline, int replica) {
  const int before = pipeline.share().count;
  pipeline.replica = replica;
  const bool same_groups = pipeline.sum_groups == pipeline.grid.replicas;
  if (!same_groups || pipeline.share().count != before) HADAL_RETURN_IF_ERROR(MakePrograms(pipeline));
  return pipeline;
}

}  // namespace hadal
