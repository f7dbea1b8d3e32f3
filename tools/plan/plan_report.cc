#include "tools/plan/plan_report.h"

#include <algorithm>

#include "kernels/adam.h"
#include "kernels/linear.h"
#include "kernels/orthogonalize.h"
#include "layers/border.h"
#include "layers/device_support.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/schedule/schedule_replay.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr double kMeasureSeconds = 0.15;

// Runs `body` repeatedly and returns calls per second of the fastest call, because disturbances only slow a machine
// down.
template <typename Body>
double CallsPerSecond(const Body& body) {
  body();
  double fastest = 1e30;
  for (const Stopwatch all; all.Seconds() < kMeasureSeconds;) {
    const Stopwatch watch;
    body();
    fastest = std::min(fastest, watch.Seconds());
  }
  return 1 / fastest;
}

int64_t ParametersOf(const ModelPlan& plan, int32_t first, int32_t last) {
  int64_t elements = 0;
  for (int32_t s = first; s < last; ++s) {
    const SublayerRecord& record = plan.sublayers[s];
    for (int32_t p = 0; p < record.parameters; ++p) elements += plan.parameters[record.first_parameter + p].elements();
  }
  return elements;
}

std::vector<ChunkReport> DescribeChunks(const ModelPlan& plan, const PipelineLayout& pipeline,
                                        const MachineRate& rate) {
  double total = 0;
  for (const double cost : pipeline.costs) total += cost;
  std::vector<ChunkReport> chunks;
  for (int g = 0; g < pipeline.shape.global_chunks(); ++g) {
    const int rank = pipeline.shape.RankOf(g), chunk = pipeline.shape.ChunkOf(g);
    ChunkReport report{.rank = rank,
                       .chunk = chunk,
                       .first = pipeline.borders[g],
                       .last = pipeline.borders[g + 1],
                       .live_micro_batches = pipeline.peak_live[rank][chunk]};
    double cost = 0, recomputed = 0;
    for (int32_t s = report.first; s < report.last; ++s) {
      cost += pipeline.costs[s];
      if (!pipeline.recomputed[s]) continue;
      ++report.recomputed_sublayers;
      recomputed += pipeline.costs[s];
    }
    report.parameters = ParametersOf(plan, report.first, report.last);
    report.cost_share = cost / total;
    if (rate.known()) report.forward_seconds = 2 * cost / (1e9 * rate.gflops);
    report.backward_seconds = (2 + recomputed / cost) * report.forward_seconds;
    report.weight_seconds = kWeightShare * 2 * report.forward_seconds;
    if (g + 1 < pipeline.shape.global_chunks()) {
      for (const Edge& edge : EdgesInFrontOf(plan, pipeline, g + 1)) {
        report.border_bytes += EdgeBytes(edge, /*gradients=*/false, pipeline.capacity, plan.options.d_model);
        report.gradient_bytes += EdgeBytes(edge, /*gradients=*/true, pipeline.capacity, plan.options.d_model);
      }
    }
    chunks.push_back(report);
  }
  return chunks;
}

absl::Status PredictStep(PlanReport& report) {
  ReplayCosts costs;
  std::vector<int64_t> parameters(report.pipeline.shape.stages, 0);
  for (const ChunkReport& chunk : report.chunks) {
    costs.forward_seconds.push_back(chunk.forward_seconds);
    costs.backward_seconds.push_back(chunk.backward_seconds);
    costs.weight_seconds.push_back(chunk.weight_seconds);
    parameters[chunk.rank] += chunk.parameters;
  }
  HADAL_ASSIGN_OR_RETURN(const Replay replay, ReplaySchedule(report.pipeline.programs, report.pipeline.shape, costs,
                                                             {.outstanding_sends = report.pipeline.outstanding_sends}));
  report.bubble = replay.BubbleFraction();
  const int shards = report.pipeline.shard_optimizer_state ? report.pipeline.grid.replicas : 1;
  if (report.rate.adam_elements_per_second > 0) {
    report.optimizer_seconds = static_cast<double>(*std::max_element(parameters.begin(), parameters.end())) / shards /
                               report.rate.adam_elements_per_second;
  }
  report.optimizer_seconds += report.muon_operations / (1e9 * report.rate.gflops);
  report.step_seconds = replay.makespan_seconds + report.optimizer_seconds;
  return absl::OkStatus();
}

// The most bytes that a rank would save without ReLU masks: one of the first replica, which has the most micro-batches.
int64_t ReluMaskBytesOf(const PlanReport& report, const Stream& stream) {
  ModelPlan bare = report.model;
  bare.relu_masks = false;
  if (bare.compute_storage != Storage::kBFloat16) return 0;
  int64_t most = 0;
  for (int stage = 0; stage < report.pipeline.shape.stages; ++stage) {
    const RankParts without(bare, report.pipeline, stage, stream, Purpose::kTraining);
    const ArenaLayout& with = report.layouts[report.pipeline.grid.RankOf(stage, 0)];
    most = std::max(most, with.device_bytes() - without.layout.device_bytes());
  }
  return most;
}

// The parts of the report that need no measurement.
absl::StatusOr<PlanReport> LayOut(const TrainOptions& options, int ranks, const Stream& stream) {
  PlanReport report{
      .model = PlannedModel(options, stream.kind()), .threads = stream.threads(), .device = stream.kind()};
  if (report.device == DeviceKind::kCuda) HADAL_RETURN_IF_ERROR(CheckDeviceSupport(report.model));
  HADAL_ASSIGN_OR_RETURN(report.pipeline,
                         MakeFittingLayout(report.model, options.batch, options.pipeline, ranks, /*rank=*/0,
                                           PlannedResources(options.pipeline, ranks, stream.kind()), stream));
  HADAL_ASSIGN_OR_RETURN(report.layouts, TrainingLayouts(report.model, report.pipeline, stream));
  report.relu_mask_bytes = ReluMaskBytesOf(report, stream);
  const std::vector<double> muon = MostOfMuonByStage(report.model, report.pipeline, [&](const ParameterRecord& matrix) {
    return OrthogonalizeOperations(matrix.rows, matrix.columns, report.model.muon_steps,
                                   /*by_halves=*/report.device == DeviceKind::kCpu);
  });
  report.muon_operations = *std::max_element(muon.begin(), muon.end());
  return report;
}

// Launches of a sublayer in a graph, the mean of forward, evaluation and backward. Counted on the emulated device: 51
// in a forward and a backward of 5 sublayers (emulated_run_test), 19 of them forward.
constexpr int64_t kLaunchesOfASublayer = 5;

}  // namespace

ModelPlan PlannedModel(const TrainOptions& options, DeviceKind device) {
  ModelPlan model = ModelPlan::Make(options.model);
  if (device != DeviceKind::kCpu) model.compute_storage = DeviceStorage(options.precision);
  model.muon_steps = options.optimizer.muon_steps();
  return model;
}

RankResources PlannedResources(const PipelineOptions& options, int ranks, DeviceKind device) {
  return {.device_transfers = device != DeviceKind::kCpu && ranks > 1 && options.transport != Transport::kHost,
          .free_links = device == DeviceKind::kCpu,
          .memory_limit_bytes = options.memory_limit_bytes};
}

int64_t PlanReport::FullestBytes() const {
  int64_t most = 0;
  for (const ArenaLayout& layout : layouts) most = std::max(most, LimitedBytes(layout, device));
  return most;
}

MachineRate MeasureRate(const ModelOptions& model, const ActivationCapacity& capacity, const Stream& stream) {
  constexpr int64_t kMostRows = 4096, kMostWidth = 8192;  // larger products are no faster
  const int64_t rows = std::clamp<int64_t>(capacity.target_rows, 16, kMostRows);
  const int64_t d = std::min<int64_t>(model.d_model, kMostWidth), f = std::min<int64_t>(model.d_ff, kMostWidth);
  std::vector<float> x(rows * d, 0.5f), weight(f * d, 0.25f), y(rows * f, 0.5f), dx(rows * d), d_weight(f * d);
  const double products = CallsPerSecond([&] {
    LinearForward(stream, {.x = {x.data(), rows, d}, .weight = {weight.data(), f, d}, .y = {y.data(), rows, f}});
    LinearBackwardInput(stream,
                        {.dy = {y.data(), rows, f}, .weight = {weight.data(), f, d}, .dx = {dx.data(), rows, d}});
    LinearBackwardWeight(stream,
                         {.dy = {y.data(), rows, f}, .x = {x.data(), rows, d}, .d_weight = {d_weight.data(), f, d}});
  });
  constexpr int64_t kElements = int64_t{1} << 22;  // exceeds the caches
  std::vector<float> parameter(kElements, 0.1f), gradient(kElements, 0.1f), first(kElements), second(kElements);
  const double updates = CallsPerSecond([&] {
    AdamStep(stream, {.parameter = {parameter.data(), kElements},
                      .gradient = {gradient.data(), kElements},
                      .first_moment = {first.data(), kElements},
                      .second_moment = {second.data(), kElements}});
  });
  return {.gflops = 6e-9 * static_cast<double>(rows * d * f) * products,
          .adam_elements_per_second = updates * static_cast<double>(kElements),
          .measured = true};
}

absl::StatusOr<PlanReport> MakePlanReport(const TrainOptions& options, int ranks, const Stream& stream,
                                          const MachineRate& rate) {
  HADAL_ASSIGN_OR_RETURN(PlanReport report, LayOut(options, ranks, stream));
  report.rate = rate;
  report.chunks = DescribeChunks(report.model, report.pipeline, rate);
  if (rate.known()) HADAL_RETURN_IF_ERROR(PredictStep(report));
  return report;
}

absl::StatusOr<PlanReport> MakePlanReport(const TrainOptions& options, int ranks, const Stream& stream,
                                          const StepCosts& costs, int devices_per_node) {
  HADAL_ASSIGN_OR_RETURN(PlanReport report, LayOut(options, ranks, stream));
  report.rate = {.gflops = 1e-9 * costs.peak_flops(), .measured = true};
  HADAL_ASSIGN_OR_RETURN(
      report.prediction,
      PredictLayout(report.model, options.batch, report.pipeline,
                    {.costs = costs, .devices_per_node = devices_per_node > 0 ? devices_per_node : ranks}));
  report.chunks = DescribeChunks(report.model, report.pipeline, report.rate);
  for (size_t g = 0; g < report.chunks.size(); ++g) {
    report.chunks[g].forward_seconds = report.prediction->costs.forward_seconds[g];
    report.chunks[g].backward_seconds = report.prediction->costs.backward_seconds[g];
    report.chunks[g].weight_seconds = report.prediction->costs.weight_seconds[g];
  }
  report.bubble = report.prediction->idle_share;
  report.optimizer_seconds = report.prediction->parts.update;
  report.step_seconds = report.prediction->step_seconds;
  return report;
}

RecordedGraphs MostGraphsOfARank(const PlanReport& report) {
  std::vector<RecordedGraphs> ranks(report.pipeline.shape.stages);
  for (const ChunkReport& chunk : report.chunks) {
    const int64_t slots = chunk.live_micro_batches;
    const int64_t pending_slots = report.pipeline.pending_slots(chunk.rank, chunk.chunk);
    ranks[chunk.rank].graphs += MostGraphs(slots, pending_slots, report.pipeline.grid.replicas);
    // With replicas, a last backward in parts has no more launches than one in a whole.
    ranks[chunk.rank].launches +=
        MostGraphs(slots, pending_slots, 1) * (chunk.last - chunk.first) * kLaunchesOfASublayer;
  }
  return *std::ranges::max_element(ranks, {}, &RecordedGraphs::launches);
}

double StepTokens(const PlanReport& report) {
  return static_cast<double>(report.pipeline.capacity.target_rows) * report.pipeline.step_micro_batches;
}

std::vector<std::pair<std::string, int64_t>> BytesByName(const ArenaLayout& layout) {
  std::vector<std::pair<std::string, int64_t>> sums;
  for (const ArenaLayout::Category& category : layout.categories()) {
    auto found = std::find_if(sums.begin(), sums.end(), [&](const auto& sum) { return sum.first == category.name; });
    if (found == sums.end()) found = sums.insert(sums.end(), {category.name, 0});
    found->second += category.bytes;
  }
  return sums;
}

}  // namespace hadal
