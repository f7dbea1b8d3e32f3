#include "tools/plan/layout_prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "layers/border.h"
#include "pipeline/exchange/replica_buckets.h"
#include "pipeline/exchange/tied_tables.h"
#include "pipeline/layout/slice_ownership.h"
#include "runtime/status_macros.h"
#include "tools/plan/gradient_overlap.h"

namespace hadal {
namespace {

// Elements of each stage's parameters.  [S]
std::vector<double> ElementsByStage(const ModelPlan& model, const PipelineLayout& pipeline) {
  std::vector<double> elements(pipeline.shape.stages, 0);
  for (const ParameterRecord& parameter : model.parameters) {
    elements[pipeline.RankOfSublayer(parameter.sublayer)] += static_cast<double>(parameter.elements());
  }
  return elements;
}

// The sums of of(slice) over the slices that each stage's replicas update: the largest.  [S]
std::vector<double> MostByStage(const ModelPlan& model, const PipelineLayout& pipeline,
                                absl::FunctionRef<double(const OwnedSlice&)> of) {
  std::vector<double> stages;
  for (const std::vector<OwnedSlice>& slices : SlicesByStage(model, pipeline)) {
    std::vector<double> replicas(pipeline.grid.replicas, 0);
    for (const OwnedSlice& slice : slices) {
      replicas[pipeline.shard_optimizer_state ? slice.replica : 0] += of(slice);
    }
    stages.push_back(*std::max_element(replicas.begin(), replicas.end()));
  }
  return stages;
}

// Replicas of a stage on one node, if nodes are filled evenly.
int NearReplicas(const GridShape& grid, int devices_per_node) {
  const bool together = grid.placement == Placement::kReplicasTogether;
  return std::clamp(together ? devices_per_node : devices_per_node / grid.stages, 1, grid.replicas);
}

// Buckets that a rank receives in a round from its node and from others, mean over the ranks; it sends as many.
struct RoundPieces {
  double near = 0, far = 0;

  double sum() const { return near + far; }
};
RoundPieces PiecesOfARound(const GridShape& grid, int devices_per_node) {
  const ReplicaBlocks blocks{.replicas = grid.replicas};
  const int near = NearReplicas(grid, devices_per_node), in_block = blocks.size();
  const double relayed = static_cast<double>(grid.replicas) / in_block;  // owners for which a rank is the relay
  const int near_blocks = std::max(near / in_block, 1);
  const int near_in_block = std::min(near, in_block);
  return {.near = relayed * (near_in_block - 1) + near_blocks - 1,
          .far = relayed * (in_block - near_in_block) + blocks.count() - near_blocks};
}

// Of a rank's host, to make a round's calls in one group.
double RoundSeconds(const StepCosts& costs, const RoundPieces& pieces) {
  return costs.CallSeconds() + 2 * pieces.sum() * costs.GroupedCallSeconds();
}

class Prediction {
 public:
  Prediction(const ModelPlan& model, const PipelineLayout& pipeline, const LayoutMachine& machine)
      : model_(model),
        pipeline_(pipeline),
        machine_(machine),
        elements_(ElementsByStage(model, pipeline)),
        pieces_(PiecesOfARound(pipeline.grid, machine.devices_per_node)) {
    for (int stage = 0; stage < pipeline.shape.stages; ++stage) {
      rounds_.push_back(pipeline.grid.replicas > 1 ? ReplicaExchanges(model, pipeline, stage) : 0);
    }
  }

  absl::Status Time(PredictionDetail detail, LayoutPrediction& result) {
    HADAL_ASSIGN_OR_RETURN(seconds_, SecondsOf(model_, pipeline_, machine_.costs));
    result.costs = Costs();
    HADAL_ASSIGN_OR_RETURN(const Replay replay, RunReplay(detail, result.costs, result.parts));
    result.busy_seconds = replay.busy_seconds;
    result.idle_share = replay.BubbleFraction();
    const auto busiest = std::max_element(result.busy_seconds.begin(), result.busy_seconds.end());
    result.busiest_stage = static_cast<int>(busiest - result.busy_seconds.begin());
    AddTail(replay, result);
    result.step_seconds = result.parts.sum();
    result.calls = MostCalls();
    for (int stage = 0; stage < pipeline_.shape.stages; ++stage) {
      double forward = 0, recompute = 0;
      for (int chunk = 0; chunk < pipeline_.shape.chunks; ++chunk) {
        forward += Sum(pipeline_.shape.GlobalChunk(stage, chunk), &SublayerSeconds::forward);
        recompute += Sum(pipeline_.shape.GlobalChunk(stage, chunk), &SublayerSeconds::recompute);
      }
      result.forward_seconds.push_back(forward * pipeline_.shape.micro_batches);
      result.recompute_seconds.push_back(recompute * pipeline_.shape.micro_batches);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Replay> RunReplay(PredictionDetail detail, const ReplayCosts& costs, PredictedParts& parts) const {
    const ReplayOptions options{.outstanding_sends = pipeline_.outstanding_sends};
    if (detail == PredictionDetail::kStep) {
      HADAL_ASSIGN_OR_RETURN(Replay replay, ReplaySchedule(pipeline_.programs, pipeline_.shape, costs, options));
      const double busy = std::accumulate(replay.busy_seconds.begin(), replay.busy_seconds.end(), 0.0);
      parts.compute = busy / pipeline_.shape.stages;
      parts.bubble = replay.makespan_seconds - parts.compute;
      return replay;
    }
    HADAL_ASSIGN_OR_RETURN(BrokenDownReplay replay, BreakDownStep(pipeline_.programs, pipeline_.shape, costs, options));
    parts.compute = replay.breakdown.compute_seconds;
    parts.host = replay.breakdown.host_seconds;
    parts.bubble = replay.breakdown.bubble_seconds;
    parts.imbalance = replay.breakdown.imbalance_seconds;
    parts.links = replay.breakdown.link_seconds;
    return std::move(replay.replay);
  }

  double Sum(int global_chunk, double SublayerSeconds::*part) const {
    double sum = 0;
    for (int32_t s = pipeline_.borders[global_chunk]; s < pipeline_.borders[global_chunk + 1]; ++s)
      sum += seconds_[s].*part;
    return sum;
  }

  ReplayCosts Costs() const {
    const int chunks = pipeline_.shape.global_chunks();
    ReplayCosts costs{.gap_seconds = PhaseGapSeconds(machine_.costs, chunks)};
    // Every group but the last is moved to a kept sum and later added: as many bytes twice, spread over micro-batches.
    const double added = 2.0 * static_cast<double>(pipeline_.group_ends().size() - 1) / pipeline_.shape.micro_batches;
    for (int g = 0; g < chunks; ++g) {
      costs.forward_seconds.push_back(Sum(g, &SublayerSeconds::forward));
      const double group_sums = added * elements_[pipeline_.shape.RankOf(g)] / pipeline_.shape.chunks;
      costs.backward_seconds.push_back(Sum(g, &SublayerSeconds::recompute) + Sum(g, &SublayerSeconds::backward) +
                                       group_sums * machine_.costs.SumSeconds());
      costs.weight_seconds.push_back(kWeightShare * Sum(g, &SublayerSeconds::backward));
      if (g + 1 == chunks) continue;
      int64_t bytes[2] = {};  // of values, of gradients
      for (const Edge& edge : EdgesInFrontOf(model_, pipeline_, g + 1)) {
        for (const bool gradients : {false, true})
          bytes[gradients] += EdgeBytes(edge, gradients, pipeline_.capacity, model_.options.d_model);
      }
      const LinkRate link = machine_.costs.Link(
          LeavesNode(pipeline_.grid, pipeline_.shape.RankOf(g), pipeline_.shape.RankOf(g + 1), machine_));
      costs.links.push_back({.held_seconds = link.HeldSeconds(static_cast<double>(bytes[0])),
                             .latency_seconds = link.latency_seconds,
                             .backward_held_seconds = link.HeldSeconds(static_cast<double>(bytes[1]))});
    }
    return costs;
  }

  // Bytes of a weight's element in messages to its readers.
  double WeightBytes() const { return static_cast<double>(BytesOf(model_.compute_storage)); }

  // A table used on several stages: gradients go to the owner, the new table comes back, piece by piece.
  double TiedSeconds() const {
    double seconds = 0;
    for (size_t p = 0; p < model_.parameters.size(); ++p) {
      if (!model_.parameters[p].is_table()) continue;
      std::set<int> stages;
      for (const int32_t use : model_.Uses(static_cast<int32_t>(p))) stages.insert(pipeline_.RankOfSublayer(use));
      const int owner = pipeline_.RankOfSublayer(model_.parameters[p].sublayer);
      const double elements = static_cast<double>(model_.parameters[p].elements());
      for (const int stage : stages) {
        if (stage == owner) continue;
        const LinkRate link = machine_.costs.Link(LeavesNode(pipeline_.grid, owner, stage, machine_));
        for (const double element_bytes : {4.0, WeightBytes()}) {
          const double held = link.HeldSeconds(element_bytes * elements), call = machine_.costs.CallSeconds();
          const double pieces = std::ceil(element_bytes * elements / (4.0 * kSliceElements));
          // Of the link, of the host, and of kUnderWay pieces that each take all their time.
          const double each = held + pieces * (link.latency_seconds + call);
          seconds += std::max({held, pieces * call, each / TiedTables::kUnderWay}) + link.latency_seconds + call;
        }
      }
    }
    return seconds;
  }

  // Sends and receives in a step of the rank that makes the most, without those of tied tables.
  double MostCalls() const {
    double most = 0;
    for (int stage = 0; stage < pipeline_.shape.stages; ++stage) {
      const auto messages = static_cast<double>(std::ranges::count_if(
          pipeline_.programs[stage], [](Operation of) { return IsSend(of) || IsReceive(of); },
          &Instruction::operation));
      most = std::max(most, messages + 4 * rounds_[stage] * pieces_.sum());
    }
    return most;
  }

  // The time when a stage's gradients are summed over the replicas.
  double ReducedSeconds(const Replay& replay, int stage) const {
    const int replicas = pipeline_.grid.replicas;
    const double end = replay.spans[stage].back().end_seconds;
    if (replicas == 1) return end;
    const StepCosts& costs = machine_.costs;
    if (!costs.overlap()) {
      return end + ExchangeSeconds(4 * elements_[stage], rounds_[stage], pipeline_.grid, machine_) +
             (replicas - 1.0) / replicas * elements_[stage] * costs.SumSeconds();
    }
    const auto pieces = GradientPieces(model_, pipeline_, stage, seconds_, replay, costs.backward_parts());
    return SummedSeconds(pieces, {.near = costs.Link(false),
                                  .far = costs.Link(true),
                                  .near_pieces = pieces_.near,
                                  .far_pieces = pieces_.far,
                                  .sum_seconds = costs.SumSeconds(),
                                  .round_seconds = RoundSeconds(costs, pieces_),
                                  .rounds_behind = rounds_[stage] - ReplicaRounds(model_, pipeline_, stage)});
  }

  // What gathering the results of a stage's update adds to it.
  double ExposedGatherSeconds(int stage, double update_seconds) const {
    const bool sharded = pipeline_.shard_optimizer_state;
    const double bytes = (sharded ? WeightBytes() : 4.0) * elements_[stage];
    const double gather = ExchangeSeconds(bytes, rounds_[stage], pipeline_.grid, machine_);
    const bool on_gpu = model_.compute_storage == Storage::kBFloat16;
    if (pipeline_.grid.replicas == 1 || !sharded || !on_gpu || !machine_.costs.overlap()) return gather;
    return GatherBehindUpdate({.update_seconds = update_seconds,
                               .gather_seconds = gather,
                               .rounds = ReplicaRounds(model_, pipeline_, stage),
                               .exchanges = rounds_[stage]});
  }

  // The time after a stage's last backward; the norm waits for the slowest stage.
  void AddTail(const Replay& replay, LayoutPrediction& result) const {
    const std::vector<double> updated =
        MostByStage(model_, pipeline_, [](const OwnedSlice& slice) { return static_cast<double>(slice.elements); });
    const std::vector<double> muon = MostOfMuonByStage(model_, pipeline_, [this](const ParameterRecord& matrix) {
      return machine_.costs.OrthogonalizeSeconds(matrix, model_.muon_steps);
    });
    double end = replay.makespan_seconds, update = 0, gather = 0;
    for (int stage = 0; stage < pipeline_.shape.stages; ++stage) {
      end = std::max(end, ReducedSeconds(replay, stage));
      update = std::max(update, machine_.costs.UpdateSeconds(elements_[stage], updated[stage]) + muon[stage]);
      const double of_slices = machine_.costs.UpdateSeconds(/*held=*/0, updated[stage]);
      gather = std::max(gather, ExposedGatherSeconds(stage, of_slices + muon[stage]));
    }
    result.parts.reduction = end - replay.makespan_seconds + gather + TiedSeconds();
    result.parts.update = update;
  }

  const ModelPlan& model_;
  const PipelineLayout& pipeline_;
  const LayoutMachine& machine_;
  const std::vector<double> elements_;  // [S] of parameters
  const RoundPieces pieces_;
  std::vector<int> rounds_;  // [S] in which its replicas exchange them
  std::vector<SublayerSeconds> seconds_;
};

}  // namespace

absl::StatusOr<std::vector<SublayerSeconds>> SecondsOf(const ModelPlan& model, const PipelineLayout& pipeline,
                                                       const StepCosts& costs) {
  HADAL_ASSIGN_OR_RETURN(std::vector<SublayerSeconds> seconds, costs.Sublayers(model, pipeline.capacity, false));
  if (LongestLength(pipeline.recompute) == 0) return seconds;
  HADAL_ASSIGN_OR_RETURN(const std::vector<SublayerSeconds> repeated, costs.Sublayers(model, pipeline.capacity, true));
  for (size_t s = 0; s < seconds.size(); ++s) {
    if (pipeline.recomputed[s]) seconds[s] = repeated[s];
  }
  return seconds;
}

std::vector<double> MostOfMuonByStage(const ModelPlan& model, const PipelineLayout& pipeline,
                                      absl::FunctionRef<double(const ParameterRecord&)> of) {
  return MostByStage(model, pipeline, [&](const OwnedSlice& slice) {
    const bool begins = slice.slice == 0 && model.uses_muon(slice.parameter) && !model.is_frozen(slice.parameter);
    return begins ? of(model.parameters[slice.parameter]) : 0.0;
  });
}

double PhaseGapSeconds(const StepCosts& costs, int global_chunks) {
  constexpr double kCalls = 2;  // a receive and a send
  return costs.GapSeconds() + (global_chunks > 1 ? kCalls * costs.CallSeconds() : 0);
}

double ExchangeSeconds(double bytes, double rounds, const GridShape& grid, const LayoutMachine& machine) {
  if (grid.replicas == 1) return 0;
  const RoundPieces pieces = PiecesOfARound(grid, machine.devices_per_node);
  const LinkRate inside = machine.costs.Link(false), outside = machine.costs.Link(true);
  const double piece = bytes / grid.replicas;
  return std::max({inside.HeldSeconds(piece * pieces.near) + (pieces.near > 0 ? inside.latency_seconds : 0),
                   outside.HeldSeconds(piece * pieces.far) + (pieces.far > 0 ? outside.latency_seconds : 0),
                   rounds * RoundSeconds(machine.costs, pieces)});
}

bool LeavesNode(const GridShape& grid, int stage, int next, const LayoutMachine& machine) {
  const int node = machine.devices_per_node;
  return grid.RankOf(stage, 0) / node != grid.RankOf(next, 0) / node;
}

absl::StatusOr<LayoutPrediction> PredictLayout(const ModelPlan& model, const BatchOptions& batch,
                                               const PipelineLayout& pipeline, const LayoutMachine& machine,
                                               PredictionDetail detail) {
  LayoutPrediction result{.batch = batch};
  result.pipeline.stages = pipeline.grid.stages;
  result.pipeline.replicas = pipeline.grid.replicas;
  result.pipeline.chunks = pipeline.shape.chunks;
  result.pipeline.schedule = pipeline.schedule;
  result.pipeline.outstanding_sends = pipeline.outstanding_sends;
  result.pipeline.shard_optimizer_state = pipeline.shard_optimizer_state;
  result.pipeline.recompute_every = LongestLength(pipeline.recompute);
  if (pipeline.recompute.size() > 1) result.pipeline.recompute = pipeline.recompute;
  result.pipeline.save_buffer_bytes = pipeline.save_buffer_bytes;
  result.pipeline.placement = pipeline.grid.placement;
  HADAL_RETURN_IF_ERROR(Prediction(model, pipeline, machine).Time(detail, result));
  return result;
}

}  // namespace hadal
