#include "tools/report/run_summary.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/output/stage_time_parts.h"
#include "tools/plan/layout_search.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/step_breakdown.h"

namespace hadal {
namespace {

// Runs with many stages record stage times at every step at first and rarely later (pipeline/step_report.h). Selects
// steps as far apart as the last ones, so that the beginning has no larger weight than the rest.
std::vector<const StepMetrics*> EvenlySpaced(std::vector<const StepMetrics*> steps) {
  constexpr size_t kLast = 4;
  if (steps.size() < kLast) return steps;
  int64_t gap = std::numeric_limits<int64_t>::max();
  for (size_t i = steps.size() - kLast + 1; i < steps.size(); ++i)
    gap = std::min(gap, steps[i]->step - steps[i - 1]->step);
  if (gap <= 1) return steps;
  const int64_t last = steps.back()->step;
  std::erase_if(steps, [&](const StepMetrics* step) { return (last - step->step) % gap != 0; });
  return steps;
}

bool HasStepsOfLayout(const RunRecord& run) { return run.layout_begins < run.steps.size(); }

// Of the run's last layout, if it has any.
std::vector<const StepMetrics*> SteadySteps(const RunRecord& run) {
  std::vector<const StepMetrics*> with_stages, all;
  const size_t begin = HasStepsOfLayout(run) ? run.layout_begins : 0;
  for (size_t i = begin; i < run.steps.size(); ++i) {
    const StepMetrics& step = run.steps[i];
    if (step.skipped || (i == begin && i + 1 < run.steps.size())) continue;
    all.push_back(&step);
    if (!step.stages.empty()) with_stages.push_back(&step);
  }
  if (!with_stages.empty()) return EvenlySpaced(std::move(with_stages));
  if (!all.empty()) return all;
  return {&run.steps.back()};
}

void Add(const StageTimes& times, double share, StageTimes& sum) {
  for (const StageTimePart& part : kStageTimeParts) sum.*part.seconds += share * (times.*part.seconds);
}

double Compute(const StageTimes& times) {
  return times.forward_seconds + times.recompute_seconds + times.backward_seconds;
}

// Idle time by replay, seconds, mean over the stages.
struct ReplayedIdle {
  double bubble = 0, imbalance = 0;
  // The part of both that a run's clocks count as communication: blocked in a send, and in the step's tail.
  double in_communication = 0;
};

// The schedule's idle time in one replica, with the measured compute of each stage spread evenly over its chunks and
// its replica's micro-batches.
absl::StatusOr<ReplayedIdle> ReplayReplica(const LayoutRecord& layout, int replica,
                                           const std::vector<StageTimes>& stages) {
  ScheduleShape shape = layout.shape;
  shape.micro_batches = ShareOf(layout.shape.micro_batches, layout.replicas, replica).count;
  HADAL_ASSIGN_OR_RETURN(const std::vector<RankProgram> programs, MakeSchedules(layout.schedule, shape));
  ReplayCosts costs;
  const double visits = static_cast<double>(shape.chunks) * shape.micro_batches;
  for (int g = 0; g < shape.global_chunks(); ++g) {
    const StageTimes& times = stages[shape.RankOf(g)];
    costs.forward_seconds.push_back(times.forward_seconds / visits);
    costs.backward_seconds.push_back((times.recompute_seconds + times.backward_seconds) / visits);
  }
  HADAL_ASSIGN_OR_RETURN(const BrokenDownReplay result,
                         BreakDownStep(programs, shape, costs, {.outstanding_sends = layout.outstanding_sends}));
  ReplayedIdle idle = {.bubble = result.breakdown.bubble_seconds, .imbalance = result.breakdown.imbalance_seconds};
  for (int stage = 0; stage < shape.stages; ++stage) {
    const double tail = result.replay.makespan_seconds - result.replay.spans[stage].back().end_seconds;
    idle.in_communication += (result.replay.blocked_seconds[stage] + tail) / shape.stages;
  }
  return idle;
}

// Mean over the replicas.
absl::StatusOr<ReplayedIdle> ReplayWait(const LayoutRecord& layout, const std::vector<StageTimes>& stages) {
  ReplayedIdle mean;
  for (int replica = 0; replica < layout.replicas; ++replica) {
    HADAL_ASSIGN_OR_RETURN(const ReplayedIdle one, ReplayReplica(layout, replica, stages));
    mean.bubble += one.bubble / layout.replicas;
    mean.imbalance += one.imbalance / layout.replicas;
    mean.in_communication += one.in_communication / layout.replicas;
  }
  return mean;
}

// Splits the waiting time that is counted as exposed transfers and communication.
void SplitWait(const ReplayedIdle& replay, TimeParts& parts) {
  const double in_communication = std::min(replay.in_communication, parts.communication);
  const double waited = parts.exposed_transfers + in_communication, replayed = replay.bubble + replay.imbalance;
  const double share = replayed > waited ? waited / replayed : 1;
  parts.bubble = share * replay.bubble;
  parts.imbalance = share * replay.imbalance;
  parts.exposed_transfers = std::max(0.0, waited - replayed);
  parts.communication -= in_communication;
}

// The time without a core in a stage's compute and optimizer.
double ShareWithoutCore(const StageTimes& times) {
  const double busy = Compute(times) + times.optimizer_seconds;
  return busy > 0 ? std::min(1.0, times.core_wait_seconds / busy) : 0;
}

// Subtracts the time without a core from the parts that contain it, in proportion.
void MoveCoreWait(double seconds, TimeParts& parts) {
  double TimeParts::*const kWhere[] = {&TimeParts::forward, &TimeParts::recompute, &TimeParts::backward,
                                       &TimeParts::optimizer};
  double busy = 0;
  for (const auto part : kWhere) busy += parts.*part;
  if (busy <= 0) return;
  parts.core_wait = std::min(seconds, busy);
  for (const auto part : kWhere) parts.*part *= 1 - parts.core_wait / busy;
}

absl::Status SplitTime(const RunRecord& run, RunSummary& summary) {
  StageTimes mean;
  for (const StageTimes& times : summary.stages) Add(times, 1.0 / static_cast<double>(summary.stages.size()), mean);
  TimeParts parts{.forward = mean.forward_seconds,
                  .recompute = mean.recompute_seconds,
                  .backward = mean.backward_seconds,
                  .optimizer = mean.optimizer_seconds,
                  .checkpoint = mean.checkpoint_seconds,
                  .exposed_transfers = mean.wait_seconds,
                  .communication = mean.communication_seconds};
  if (run.layout && run.layout->shape.stages == std::ssize(summary.stages)) {
    HADAL_ASSIGN_OR_RETURN(const ReplayedIdle replay, ReplayWait(*run.layout, summary.stages));
    SplitWait(replay, parts);
    summary.wait_is_split = true;
  }
  for (double TimeParts::*const waiting : {&TimeParts::exposed_transfers, &TimeParts::communication}) {
    const double excess = std::max(0.0, parts.sum() - summary.step_seconds);
    parts.*waiting -= std::min(parts.*waiting, excess);
  }
  parts.unexplained = summary.step_seconds - parts.sum();
  MoveCoreWait(mean.core_wait_seconds, parts);
  summary.parts = parts;
  for (size_t stage = 0; stage < summary.stages.size(); ++stage) {
    const double excess = Compute(summary.stages[stage]) / Compute(mean) - 1;
    if (summary.slowest_stage >= 0 && excess <= summary.slowest_excess) continue;
    summary.slowest_stage = static_cast<int>(stage);
    summary.slowest_excess = excess;
  }
  return absl::OkStatus();
}

// What the model takes from its corpus: the run's record, for vocabularies also the profile of its model.
absl::Status FollowRecord(const RunRecord& run, const LoadedCosts& costs, ModelOptions& model) {
  if (run.frame_width > 0) model.frame_width = run.frame_width;
  model.source_vocabulary = run.source_vocabulary;
  model.target_vocabulary = run.target_vocabulary;
  if (model.target_vocabulary > 0) return absl::OkStatus();
  if (!costs.profile) {
    return InvalidArgumentError(run.directory,
                                ": the sizes of its vocabularies are not recorded; give a profile of its model");
  }
  model.source_vocabulary = costs.profile->model().source_vocabulary();
  model.target_vocabulary = costs.profile->model().target_vocabulary();
  return absl::OkStatus();
}

// Replicas with uneven shares of the micro-batches count with their mean.
std::vector<ComputeCosts> ComputeOf(const RunRecord& run, const LoadedCosts& costs, const PipelineLayout& plan,
                                    const LayoutPrediction& layout) {
  const double share = static_cast<double>(plan.step_micro_batches) / plan.grid.replicas / plan.shape.micro_batches;
  const double scale = costs.profile ? share * costs.profile->threads() / run.threads : share;
  std::vector<ComputeCosts> compute;
  for (size_t stage = 0; stage < layout.busy_seconds.size(); ++stage) {
    const double forward = layout.forward_seconds[stage], recompute = layout.recompute_seconds[stage];
    compute.push_back({scale * forward, scale * recompute, scale * (layout.busy_seconds[stage] - forward - recompute)});
  }
  return compute;
}

}  // namespace

void CompareWithCosts(const std::vector<ComputeCosts>& costs, RunSummary& summary) {
  if (!summary.parts || costs.size() != summary.stages.size()) return;
  ComputeCosts mean;
  for (size_t stage = 0; stage < costs.size(); ++stage) {
    const double share = 1.0 / static_cast<double>(costs.size());
    mean.forward += share * costs[stage].forward;
    mean.recompute += share * costs[stage].recompute;
    mean.backward += share * costs[stage].backward;
    const StageTimes& times = summary.stages[stage];
    const double had_core = Compute(times) * (1 - ShareWithoutCore(times));
    summary.beyond_costs.push_back(costs[stage].sum() > 0 ? had_core / costs[stage].sum() - 1 : 0);
  }
  TimeParts& parts = *summary.parts;
  parts.slower = parts.forward + parts.recompute + parts.backward - mean.sum();
  parts.forward = mean.forward;
  parts.recompute = mean.recompute;
  parts.backward = mean.backward;
}

std::string DescribeSlowStage(const RunSummary& summary) {
  constexpr double kSlow = 1.1, kLeastImbalance = 0.01;
  const double others = static_cast<double>(summary.stages.size()) - 1;
  if (others < 1 || !summary.parts || summary.parts->imbalance < kLeastImbalance * summary.step_seconds) return "";
  const size_t slow = static_cast<size_t>(summary.slowest_stage);
  StageTimes rest;
  for (size_t stage = 0; stage < summary.stages.size(); ++stage) {
    if (stage != slow) Add(summary.stages[stage], 1 / others, rest);
  }
  const StageTimes& times = summary.stages[slow];
  const double excess = Compute(times) - Compute(rest);
  if (Compute(times) < kSlow * Compute(rest)) return "";
  const char* reason =
      "its device is slower, or it has more to compute: replace it, or let the partition follow "
      "measured costs (pipeline.split)";
  if (times.core_wait_seconds - rest.core_wait_seconds > excess / 2) {
    reason = "other processes use its cores: give each of its threads a core of its own";
  } else if (!summary.beyond_costs.empty() && summary.beyond_costs[slow] >= kSlow - 1) {
    reason = "its device is slower than profiled: replace it, or look for what stops it";
  }
  return absl::StrFormat("stage %d computes %.0f%% longer than the mean, and the others wait for it; %s", slow,
                         100 * summary.slowest_excess, reason);
}

absl::StatusOr<RunSummary> Summarize(const RunRecord& run) {
  RunSummary summary;
  const std::vector<const StepMetrics*> steps = SteadySteps(run);
  summary.steps = std::ssize(steps);
  const double share = 1.0 / static_cast<double>(steps.size());
  for (const StepMetrics* step : steps) {
    summary.step_seconds += share * step->step_seconds;
    summary.tokens += share * static_cast<double>(step->target_tokens);
    if (!HasStepsOfLayout(run)) continue;  // their stages are not this layout's
    summary.stages.resize(step->stages.size());
    for (size_t stage = 0; stage < step->stages.size(); ++stage) {
      Add(step->stages[stage], share, summary.stages[stage]);
    }
  }
  double outside = 0, counted = 0;
  for (size_t i = 1; i < run.steps.size(); ++i) {
    if (std::ranges::binary_search(run.starts, i)) continue;  // its clock is another one
    outside += run.steps[i].elapsed_seconds - run.steps[i - 1].elapsed_seconds - run.steps[i].step_seconds;
    ++counted;
  }
  if (counted > 0) summary.outside_seconds = std::max(0.0, outside / counted);
  for (size_t i = run.layout_begins; i < run.steps.size(); ++i) {
    if (!run.steps[i].memory.empty()) summary.memory = run.steps[i].memory;
  }
  if (!summary.stages.empty()) HADAL_RETURN_IF_ERROR(SplitTime(run, summary));
  return summary;
}

absl::StatusOr<RunPrediction> PredictRun(const RunRecord& run, const RunSummary& summary, const CostFiles& files) {
  HADAL_ASSIGN_OR_RETURN(const LoadedCosts loaded, LoadCosts(files));
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig config,
                         LoadConfig({JoinPath(run.directory, kResolvedConfigName)}, {}));
  HADAL_ASSIGN_OR_RETURN(RunOptions options, MakeRunOptions(config));
  HADAL_RETURN_IF_ERROR(FollowRecord(run, loaded, options.train.model));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<StepCosts> costs, loaded.For(options.train.model));
  const Stream stream = Stream::ForLayouts(loaded.machine ? loaded.machine->device() : DeviceKind::kCpu, run.threads);
  HADAL_ASSIGN_OR_RETURN(const PlanReport plan, MakePlanReport(options.train, run.ranks, stream, *costs,
                                                               loaded.machine ? loaded.machine->devices_per_node : 0));
  HADAL_CHECK(plan.prediction.has_value());
  const int64_t process_bytes = loaded.profile ? loaded.profile->process_bytes() : MemoryAllowance::Bytes(run.threads);
  RunPrediction prediction{.layout = *plan.prediction,
                           .costs = costs->Describe(),
                           .predicted_bytes = plan.FullestBytes() + process_bytes,
                           .measured_seconds = summary.step_seconds,
                           .compute = ComputeOf(run, loaded, plan.pipeline, *plan.prediction)};
  for (const StageMemory& memory : summary.memory) {
    prediction.measured_bytes = std::max(prediction.measured_bytes, memory.held_bytes);
  }
  // Of an encoder alone the run counts masked tokens, the layout all.
  const double counted = options.train.model.has_decoder() ? 1 : config.data().masking().share();
  const double full = summary.tokens / (counted * prediction.layout.TargetTokens());
  prediction.model_tflops = 1e-12 * full * StepOperations(plan.model, options.train.batch) / summary.step_seconds;
  prediction.utilisation = 1e12 * prediction.model_tflops / (costs->peak_flops() * run.ranks);
  HADAL_ASSIGN_OR_RETURN(const std::vector<SublayerSeconds> seconds, SecondsOf(plan.model, plan.pipeline, *costs));
  double all = 0;
  for (const SublayerSeconds& sublayer : seconds) all += sublayer.sum() * options.train.batch.micro_batches;
  prediction.roofline_share = all / run.ranks / summary.step_seconds;
  return prediction;
}

}  // namespace hadal
