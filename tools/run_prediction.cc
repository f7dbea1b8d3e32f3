#include "tools/run_prediction.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/config_loading.h"
#include "tools/layout_search.h"
#include "tools/plan_report.h"
#include "tools/profiled_costs.h"
#include "tools/run_options.h"

namespace hadal {

absl::StatusOr<RunPrediction> PredictRun(const RunRecord& run, const RunSummary& summary, const std::string& profile) {
  HADAL_ASSIGN_OR_RETURN(const config::Profile measured, LoadProfile(profile));
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig config,
                         LoadConfig({JoinPath(run.directory, "config.resolved.textproto")}, {}));
  HADAL_ASSIGN_OR_RETURN(RunOptions options, MakeRunOptions(config));
  options.train.model.source_vocabulary = measured.model().source_vocabulary();
  options.train.model.target_vocabulary = measured.model().target_vocabulary();
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<StepCosts> costs,
                         MakeProfiledCosts(measured, options.train.model, std::nullopt));
  HADAL_ASSIGN_OR_RETURN(const PlanReport plan,
                         MakePlanReport(options.train, run.ranks, Stream::Cpu(run.threads), *costs));
  HADAL_CHECK(plan.prediction.has_value());
  RunPrediction prediction{.layout = *plan.prediction,
                           .costs = costs->Describe(),
                           .predicted_bytes = plan.prediction->FullestBytes() + measured.process_bytes(),
                           .measured_seconds = summary.step_seconds};
  for (const StageMemory& memory : summary.memory) {
    prediction.measured_bytes = std::max(prediction.measured_bytes, memory.peak_resident_bytes);
  }
  const double full = summary.tokens / prediction.layout.TargetTokens();
  prediction.utilisation =
      full * StepOperations(plan.model, options.train.batch) / (costs->peak_flops() * run.ranks * summary.step_seconds);
  HADAL_ASSIGN_OR_RETURN(const std::vector<SublayerSeconds> seconds,
                         costs->Sublayers(plan.model, plan.pipeline.capacity, plan.pipeline.checkpoint_every > 0));
  double all = 0;
  for (const SublayerSeconds& sublayer : seconds) all += sublayer.sum() * options.train.batch.micro_batches;
  prediction.roofline_share = all / run.ranks / summary.step_seconds;
  return prediction;
}

}  // namespace hadal
