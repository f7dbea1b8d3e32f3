#include "tools/plan/layout_prediction.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "layers/border.h"
#include "layers/purpose.h"
#include "pipeline/engine/rank_parts.h"
#include "pipeline/plan/slice_ownership.h"
#include "runtime/status_macros.h"
#include "tools/plan/gradient_overlap.h"

namespace hadal {
namespace {

// Elements of each stage's parameters.  [S]
std::vector<double> ElementsByStage(const ModelPlan& model, const PipelinePlan& plan) {
  std::vector<double> elements(plan.shape.stages, 0);
  for (const ParameterRecord& parameter : model.parameters) {
    elements[plan.RankOfSublayer(parameter.sublayer)] += static_cast<double>(parameter.elements());
  }
  return elements;
}

bool IsState(const std::string& category) {
  return category == "weights" || category == "gradients" || category == "optimizer";
}

// Numbers of elements of a stage's parameters: those whose state is kept by the replica that updates most; and of those
// that a GPU rounds for products, the ones that the stage reads (including other stages' tables), and the replica's
// masters.
struct StageElements {
  int64_t updated = 0;
  int64_t rounded = 0, masters = 0;
};

// [S]
std::vector<StageElements> CountElements(const ModelPlan& model, const PipelinePlan& plan) {
  std::vector<StageElements> stages;
  for (const std::vector<OwnedSlice>& slices : SlicesByStage(model, plan)) {
    std::vector<StageElements> replicas(plan.grid.replicas);
    for (const OwnedSlice& slice : slices) {
      StageElements& replica = replicas[plan.shard_optimizer_state ? slice.replica : 0];
      replica.updated += slice.elements;
      if (model.ReadByProductsAlone(slice.parameter)) replica.masters += slice.elements;
    }
    const auto less = [](const StageElements& a, const StageElements& b) { return a.updated < b.updated; };
    stages.push_back(*std::max_element(replicas.begin(), replicas.end(), less));
  }
  for (int32_t p = 0; p < std::ssize(model.parameters); ++p) {
    if (!model.ReadByProductsAlone(p)) continue;
    std::set<int> readers;
    for (const int32_t use : model.Uses(p)) readers.insert(plan.RankOfSublayer(use));
    for (const int reader : readers) stages[reader].rounded += model.parameters[p].elements();
  }
  return stages;
}

// Bytes on a GPU of a category that takes `bytes` in fp32.
int64_t GpuBytes(const std::string& category, int64_t bytes, int64_t residual_bytes, const StageElements& elements) {
  constexpr int64_t kFloat = BytesOf(Storage::kFloat32), kRounded = BytesOf(Storage::kBFloat16);
  if (category == "weights") return bytes - (kFloat - kRounded) * elements.rounded + kFloat * elements.masters;
  const bool flows = category == "activations" || category == "borders";
  return flows ? bytes * residual_bytes / kFloat : bytes;
}

class Prediction {
 public:
  Prediction(const ModelPlan& model, const PipelinePlan& plan, const LayoutMachine& machine)
      : model_(model), plan_(plan), machine_(machine), elements_(ElementsByStage(model, plan)) {
    element_bytes_ = static_cast<double>(ResidualBytes(model.options, machine.precision));
  }

  absl::Status Time(PredictionDetail detail, LayoutPrediction& result) {
    HADAL_ASSIGN_OR_RETURN(seconds_, machine_.costs.Sublayers(model_, plan_.capacity, plan_.recompute_every > 0));
    HADAL_ASSIGN_OR_RETURN(const Replay replay, RunReplay(detail, result.parts));
    result.busy_seconds = replay.busy_seconds;
    result.idle_share = replay.BubbleFraction();
    const auto busiest = std::max_element(result.busy_seconds.begin(), result.busy_seconds.end());
    result.busiest_stage = static_cast<int>(busiest - result.busy_seconds.begin());
    AddTail(replay, result);
    result.step_seconds = result.parts.sum();
    for (int stage = 0; stage < plan_.shape.stages; ++stage) {
      double forward = 0, recompute = 0;
      for (int chunk = 0; chunk < plan_.shape.chunks; ++chunk) {
        forward += Sum(plan_.shape.GlobalChunk(stage, chunk), &SublayerSeconds::forward);
        recompute += Sum(plan_.shape.GlobalChunk(stage, chunk), &SublayerSeconds::recompute);
      }
      result.forward_seconds.push_back(forward * plan_.shape.micro_batches);
      result.recompute_seconds.push_back(recompute * plan_.shape.micro_batches);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Replay> RunReplay(PredictionDetail detail, PredictedParts& parts) const {
    const ReplayOptions options{.outstanding_sends = plan_.outstanding_sends};
    if (detail == PredictionDetail::kStep) {
      HADAL_ASSIGN_OR_RETURN(Replay replay, ReplaySchedule(plan_.programs, plan_.shape, Costs(), options));
      const double busy = std::accumulate(replay.busy_seconds.begin(), replay.busy_seconds.end(), 0.0);
      parts.compute = busy / plan_.shape.stages;
      parts.bubble = replay.makespan_seconds - parts.compute;
      return replay;
    }
    HADAL_ASSIGN_OR_RETURN(BrokenDownReplay replay, BreakDownStep(plan_.programs, plan_.shape, Costs(), options));
    parts.compute = replay.breakdown.compute_seconds;
    parts.bubble = replay.breakdown.bubble_seconds;
    parts.imbalance = replay.breakdown.imbalance_seconds;
    parts.links = replay.breakdown.link_seconds;
    return std::move(replay.replay);
  }

  double Sum(int global_chunk, double SublayerSeconds::*part) const {
    double sum = 0;
    for (int32_t s = plan_.borders[global_chunk]; s < plan_.borders[global_chunk + 1]; ++s) sum += seconds_[s].*part;
    return sum;
  }

  ReplayCosts Costs() const {
    ReplayCosts costs;
    const int chunks = plan_.shape.global_chunks();
    for (int g = 0; g < chunks; ++g) {
      costs.forward_seconds.push_back(Sum(g, &SublayerSeconds::forward));
      costs.backward_seconds.push_back(Sum(g, &SublayerSeconds::recompute) + Sum(g, &SublayerSeconds::backward));
      if (g + 1 == chunks) continue;
      double bytes = 0;
      for (const Edge& edge : BorderEdges(model_, plan_.borders[g + 1])) {
        bytes += static_cast<double>(plan_.capacity.rows(edge.rows) * model_.options.d_model) * element_bytes_;
      }
      const LinkRate link = machine_.costs.Link(
          LeavesNode(plan_.shape.RankOf(g), plan_.shape.RankOf(g + 1), plan_.grid.replicas, machine_));
      costs.links.push_back({.held_seconds = link.HeldSeconds(bytes), .latency_seconds = link.latency_seconds});
    }
    return costs;
  }

  // Bytes of a weight's element in messages to its readers.
  double WeightBytes() const { return machine_.precision == Precision::kBf16 ? 2 : 4; }

  // A table used on several stages: gradients go to the owner, the new table comes back.
  double TiedSeconds() const {
    double seconds = 0;
    for (size_t p = 0; p < model_.parameters.size(); ++p) {
      if (model_.parameters[p].role != ParameterRole::kEmbedding) continue;
      std::set<int> stages;
      for (const int32_t use : model_.Uses(static_cast<int32_t>(p))) stages.insert(plan_.RankOfSublayer(use));
      const int owner = plan_.RankOfSublayer(model_.parameters[p].sublayer);
      for (const int stage : stages) {
        if (stage == owner) continue;
        const LinkRate link = machine_.costs.Link(LeavesNode(owner, stage, plan_.grid.replicas, machine_));
        const double table = static_cast<double>(model_.parameters[p].elements());
        seconds += link.HeldSeconds(4 * table) + link.HeldSeconds(WeightBytes() * table) + 2 * link.latency_seconds;
      }
    }
    return seconds;
  }

  // The time when a stage's gradients are summed over the replicas.
  double ReducedSeconds(const Replay& replay, int stage) const {
    const int replicas = plan_.grid.replicas;
    const double end = replay.spans[stage].back().end_seconds;
    if (replicas == 1) return end;
    const StepCosts& costs = machine_.costs;
    if (!costs.overlap()) {
      return end + ExchangeSeconds(4 * elements_[stage], replicas, machine_) +
             (replicas - 1.0) / replicas * elements_[stage] * costs.SumSeconds();
    }
    const auto pieces = GradientPieces(model_, plan_, stage, seconds_, replay, costs.backward_parts());
    const int near = std::min(replicas, machine_.devices_per_node) - 1;
    return SummedSeconds(pieces, {.near = costs.Link(false),
                                  .far = costs.Link(true),
                                  .near_replicas = near,
                                  .far_replicas = replicas - 1 - near,
                                  .sum_seconds = costs.SumSeconds()});
  }

  // The time after a stage's last backward; the norm waits for the slowest stage.
  void AddTail(const Replay& replay, LayoutPrediction& result) const {
    const int replicas = plan_.grid.replicas;
    const std::vector<StageElements> elements = CountElements(model_, plan_);
    double end = replay.makespan_seconds, update = 0, gather = 0;
    for (int stage = 0; stage < plan_.shape.stages; ++stage) {
      end = std::max(end, ReducedSeconds(replay, stage));
      const double moments = static_cast<double>(elements[stage].updated);
      update = std::max(update, machine_.costs.UpdateSeconds(elements_[stage], moments));
      const double back = plan_.shard_optimizer_state ? WeightBytes() : 4.0;
      gather = std::max(gather, ExchangeSeconds(back * elements_[stage], replicas, machine_));
    }
    result.parts.reduction = end - replay.makespan_seconds + gather + TiedSeconds();
    result.parts.update = update;
  }

  const ModelPlan& model_;
  const PipelinePlan& plan_;
  const LayoutMachine& machine_;
  const std::vector<double> elements_;  // [S] of parameters
  double element_bytes_ = 4;            // of the stream, at borders
  std::vector<SublayerSeconds> seconds_;
};

}  // namespace

double ExchangeSeconds(double bytes, int replicas, const LayoutMachine& machine) {
  if (replicas == 1) return 0;
  const double near = std::min(replicas, machine.devices_per_node) - 1, far = replicas - 1 - near;
  const LinkRate inside = machine.costs.Link(false), outside = machine.costs.Link(true);
  const double piece = bytes / replicas;
  return std::max(inside.HeldSeconds(piece * near) + (near > 0 ? inside.latency_seconds : 0),
                  outside.HeldSeconds(piece * far) + (far > 0 ? outside.latency_seconds : 0));
}

bool LeavesNode(int stage, int next, int replicas, const LayoutMachine& machine) {
  return stage * replicas / machine.devices_per_node != next * replicas / machine.devices_per_node;
}

int64_t ResidualBytes(const ModelOptions& model, Precision precision) {
  const bool normed = model.decoder.norm == NormPlacement::kPost &&
                      (!model.has_encoder() || model.encoder.norm == NormPlacement::kPost);
  return precision == Precision::kBf16 && normed ? 2 : 4;
}

int64_t LayoutPrediction::FullestBytes() const {
  int64_t most = 0;
  for (const StageBytes& stage : stages) most = std::max(most, stage.total);
  return most;
}

std::vector<StageBytes> MemoryOfStages(const ModelPlan& model, const PipelinePlan& plan, const LayoutMachine& machine) {
  const Stream stream = Stream::Cpu(machine.threads);
  const bool gpu = machine.precision == Precision::kBf16;
  const int64_t residual_bytes = ResidualBytes(model.options, machine.precision);
  const std::vector<StageElements> elements = CountElements(model, plan);
  std::vector<StageBytes> stages;
  for (int stage = 0; stage < plan.shape.stages; ++stage) {
    const RankParts rank(model, plan, stage, stream, Purpose::kTraining);
    StageBytes bytes;
    std::map<int, int64_t> scratch;  // of each program; they overlap
    for (const ArenaLayout::Category& category : rank.layout.categories()) {
      int64_t of_category = category.bytes;
      // Replicas own slightly different numbers of moments.
      if (category.name == "optimizer")
        of_category = std::max(of_category, 2 * int64_t{sizeof(float)} * elements[stage].updated);
      if (gpu) of_category = GpuBytes(category.name, of_category, residual_bytes, elements[stage]);
      if (IsState(category.name)) bytes.state += of_category;
      (category.section.lasting ? bytes.total : scratch[category.program]) += of_category;
    }
    int64_t widest = 0;
    for (const auto& [program, of_program] : scratch) widest = std::max(widest, of_program);
    bytes.total += widest;
    bytes.activations = bytes.total - bytes.state;
    stages.push_back(bytes);
  }
  return stages;
}

absl::StatusOr<LayoutPrediction> PredictPlan(const ModelPlan& model, const BatchOptions& batch,
                                             const PipelinePlan& plan, const LayoutMachine& machine,
                                             PredictionDetail detail) {
  LayoutPrediction result{.batch = batch};
  result.pipeline.stages = plan.grid.stages;
  result.pipeline.replicas = plan.grid.replicas;
  result.pipeline.chunks = plan.shape.chunks;
  result.pipeline.schedule = plan.schedule;
  result.pipeline.outstanding_sends = plan.outstanding_sends;
  result.pipeline.shard_optimizer_state = plan.shard_optimizer_state;
  result.pipeline.recompute_every = plan.recompute_every;
  result.pipeline.save_buffer_bytes = plan.save_buffer_bytes;
  if (detail == PredictionDetail::kParts) result.stages = MemoryOfStages(model, plan, machine);
  HADAL_RETURN_IF_ERROR(Prediction(model, plan, machine).Time(detail, result));
  return result;
}

absl::StatusOr<LayoutPrediction> PredictLayout(const ModelPlan& model, const BatchOptions& batch,
                                               const PipelineOptions& pipeline, const LayoutMachine& machine,
                                               PredictionDetail detail) {
  HADAL_ASSIGN_OR_RETURN(const PipelinePlan plan,
                         MakePipelinePlan(model, batch, pipeline, pipeline.stages * pipeline.replicas));
  return PredictPlan(model, batch, plan, machine, detail);
}

}  // namespace hadal
