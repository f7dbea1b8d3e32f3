#include "tools/report/run_prediction.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/plan/layout_search.h"
#include "tools/plan/plan_report.h"

namespace hadal {
namespace {

// What the model takes from its corpus: the run's record, for vocabularies also the profile of its model.
absl::Status FollowRecord(const RunRecord& run, const LoadedCosts& costs, ModelOptions& model) {
  if (run.frame_width > 0) model.frame_width = run.frame_width;
  model.source_vocabulary = run.source_vocabulary;
  model.target_vocabulary = run.target_vocabulary;
  if (model.target_vocabulary > 0) return absl::OkStatus();
  if (!costs.profile) {
    return absl::InvalidArgumentError(
        absl::StrCat(run.directory, ": the sizes of its vocabularies are not recorded; give a profile of its model"));
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
  const double full = summary.tokens / prediction.layout.TargetTokens();
  prediction.utilisation =
      full * StepOperations(plan.model, options.train.batch) / (costs->peak_flops() * run.ranks * summary.step_seconds);
  HADAL_ASSIGN_OR_RETURN(const std::vector<SublayerSeconds> seconds,
                         costs->Sublayers(plan.model, plan.pipeline.capacity, plan.pipeline.recompute_every > 0));
  double all = 0;
  for (const SublayerSeconds& sublayer : seconds) all += sublayer.sum() * options.train.batch.micro_batches;
  prediction.roofline_share = all / run.ranks / summary.step_seconds;
  return prediction;
}

}  // namespace hadal
