#include "pipeline/step_report.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/machine.h"
#include "runtime/math.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

double ShareOf(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

constexpr double StageTimes::*kTimes[] = {
    &StageTimes::forward_seconds,    &StageTimes::recompute_seconds,     &StageTimes::backward_seconds,
    &StageTimes::wait_seconds,       &StageTimes::communication_seconds, &StageTimes::optimizer_seconds,
    &StageTimes::checkpoint_seconds, &StageTimes::core_wait_seconds,     &StageTimes::launches};
static_assert(sizeof(kTimes) / sizeof(kTimes[0]) == sizeof(StageTimes) / sizeof(double));
constexpr int64_t StageMemory::*kMemory[] = {&StageMemory::arena_bytes, &StageMemory::held_bytes,
                                             &StageMemory::peak_resident_bytes, &StageMemory::graph_bytes};
static_assert(sizeof(kMemory) / sizeof(kMemory[0]) == sizeof(StageMemory) / sizeof(int64_t));

}  // namespace

RunInfo DescribeRun(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline, int threads,
                    int64_t first_step) {
  const ModelOptions& model = plan.options;
  const std::span<const int32_t> cuts(pipeline.borders.begin() + 1, pipeline.borders.end() - 1);
  const std::string recomputed =
      pipeline.recompute.size() > 1
          ? absl::StrFormat(", %d sublayers recomputed", std::ranges::count(pipeline.recomputed, true))
          : "";
  const bool together = pipeline.grid.placement == Placement::kReplicasTogether;
  return {.run_directory = options.run_directory,
          .model = absl::StrFormat("%s, d_model %d, %d heads, d_ff %d: %d sublayers", DepthName(model), model.d_model,
                                   model.heads, model.d_ff, model.encoder_sublayers() + model.decoder_sublayers()),
          .parameters = plan.ParameterElements(),
          .source_vocabulary = model.source_vocabulary,
          .frame_width = model.frame_width,
          .target_vocabulary = model.target_vocabulary,
          .encoder_sublayers = model.encoder_sublayers(),
          .decoder_sublayers = model.decoder_sublayers(),
          .ranks = pipeline.grid.stages * pipeline.grid.replicas,
          .stages = pipeline.grid.stages,
          .replicas = pipeline.grid.replicas,
          .free_links = pipeline.shape.free_links,
          .threads = threads,
          .recompute_every = LongestLength(pipeline.recompute),
          .layout = absl::StrFormat("%s, chunks %d, cut before sublayers [%s], outstanding sends %d, %s, %d "
                                    "micro-batches of %d/%d rows%s",
                                    ToString(pipeline.schedule), pipeline.shape.chunks, absl::StrJoin(cuts, ", "),
                                    pipeline.outstanding_sends, together ? "replicas together" : "stages together",
                                    options.batch.micro_batches, pipeline.capacity.source_rows,
                                    pipeline.capacity.target_rows, recomputed),
          .first_step = first_step,
          .total_steps = options.stop.steps};
}

std::string DescribeLeftOut(std::string_view corpus, int64_t too_long, int64_t samples, const TrainOptions& options) {
  if (too_long == 0) return "";
  const std::string counts = absl::StrFormat("%d of %d %s samples (%.3g%%) are left out", too_long, samples, corpus,
                                             100 * ShareOf(too_long, samples));
  if (!options.model.translates()) {
    return absl::StrFormat("%s: a line is longer than batch.target_tokens = %d or model.max_positions = %d", counts,
                           options.batch.target_tokens, options.model.max_positions);
  }
  return absl::StrFormat(
      "%s: a side is longer than batch.source_tokens = %d, batch.target_tokens = %d or model.max_positions = %d",
      counts, options.batch.source_tokens, options.batch.target_tokens, options.model.max_positions);
}

absl::Status CheckLeftOut(int64_t too_long, int64_t samples, const TrainOptions& options) {
  if (ShareOf(too_long, samples) <= options.max_left_out) return absl::OkStatus();
  return InvalidArgumentError(absl::StrFormat(
      "%s; data.max_left_out allows a share of %g. Raise those limits, prepare shorter samples, or raise "
      "data.max_left_out if the rest is what should be trained on",
      DescribeLeftOut("training", too_long, samples, options), options.max_left_out));
}

absl::StatusOr<StageSurvey> SurveyStages(const GridShape& grid, const StageTimes& times, const StageMemory& memory,
                                         Collectives& collectives) {
  std::vector<double> mine;
  for (const auto field : kTimes) mine.push_back(times.*field);
  for (const auto field : kMemory) mine.push_back(static_cast<double>(memory.*field));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives.AllGather(mine, "stage times"));
  StageSurvey survey;
  survey.times.resize(grid.stages);
  survey.memory.resize(grid.stages);
  for (int stage = 0; stage < grid.stages; ++stage) {
    for (int replica = 0; replica < grid.replicas; ++replica) {
      auto value = all[grid.RankOf(stage, replica)].begin();
      for (const auto field : kTimes) survey.times[stage].*field += *value++ / grid.replicas;
      for (const auto field : kMemory) {
        int64_t& most = survey.memory[stage].*field;
        most = std::max(most, static_cast<int64_t>(*value++));
      }
    }
  }
  return survey;
}

namespace {

// The step's target tokens, </s> included, by corpus.
std::vector<std::pair<std::string, int64_t>> CorpusTokens(const Corpus& corpus, const StepBatches& batches) {
  const std::vector<std::string>& names = corpus.manifest().corpora;
  if (names.size() < 2) return {};
  std::map<int32_t, int64_t> tokens;
  for (const PackedBatch& batch : batches.micro_batches) {
    for (size_t s = 0; s < batch.samples.size(); ++s) {
      tokens[corpus.sample(batch.samples[s]).corpus_id] += batch.target_offsets[s + 1] - batch.target_offsets[s];
    }
  }
  std::vector<std::pair<std::string, int64_t>> named;
  for (const auto& [id, count] : tokens) {
    if (id >= 0 && id < std::ssize(names)) named.emplace_back(names[static_cast<size_t>(id)], count);
  }
  return named;
}

}  // namespace

void StepReport::Restart(const TrainingProgress& from) {
  first_step_ = from.step;
  first_epochs_ = from.epochs_done;
  session_.Restart();
}

StageMemory StepReport::MeasureMemory(Engine& engine) {
  constexpr double kEverySeconds = 10;  // what is given back has to be fetched again: a millisecond
  if (held_bytes_ == 0 || since_measured_.Seconds() >= kEverySeconds) {
    ReturnFreeMemory();
    held_bytes_ = std::max(held_bytes_, HeldBytes());
    since_measured_.Restart();
  }
  return {.arena_bytes = engine.arena_bytes(),
          .held_bytes = held_bytes_,
          .peak_resident_bytes = PeakResidentBytes(),
          .graph_bytes = engine.graph_bytes()};
}

std::optional<StepReport::End> StepReport::FirstEnd(const TrainingProgress& progress) const {
  std::optional<End> end;
  const auto limit = [&end](const char* name, double seconds) {
    seconds = std::max(0.0, seconds);
    if (!end || seconds < end->seconds) end = {seconds, name};
  };
  const double seconds = session_.Seconds();
  if (options_.stop.steps > 0) {
    const double per_step = seconds / static_cast<double>(progress.step - first_step_);
    limit("steps", per_step * static_cast<double>(options_.stop.steps - progress.step));
  }
  if (options_.stop.epochs > 0 && progress.epochs_done > first_epochs_) {
    const double per_epoch = seconds / (progress.epochs_done - first_epochs_);
    limit("epochs", per_epoch * (options_.stop.epochs - progress.epochs_done));
  }
  if (options_.stop.minutes > 0) limit("minutes", options_.stop.minutes * 60 - seconds);
  return end;
}

absl::Status StepReport::Send(Engine& engine, const StepResult& result, const TrainingProgress& progress,
                              double learning_rate, const Corpus& corpus, const StepBatches& batches) {
  StageSurvey stages;
  if (IsSurveyedStep(progress.step, options_.log_every_steps, pipeline_.grid.stages)) {
    HADAL_ASSIGN_OR_RETURN(stages, SurveyStages(pipeline_.grid, result.times, MeasureMemory(engine), collectives_));
  }
  if (sink_ == nullptr) return absl::OkStatus();
  const LossSums& sums = result.gradient.loss;
  double waited = 0;
  for (const StageTimes& stage : stages.times) waited += stage.wait_seconds;
  StepMetrics metrics{.step = progress.step,
                      .update = progress.update,
                      .total_steps = options_.stop.steps,
                      .loss = sums.MeanLoss(),
                      .nll = sums.MeanNll(),
                      .perplexity = Exp(sums.MeanNll()),
                      .learning_rate = learning_rate,
                      .gradient_norm = result.gradient.norm,
                      .target_tokens = sums.tokens,
                      .corpus_tokens = CorpusTokens(corpus, batches),
                      .tokens_per_second = static_cast<double>(sums.tokens) / result.seconds,
                      .step_seconds = result.seconds,
                      .elapsed_seconds = session_.Seconds(),
                      .epoch = progress.epochs_done,
                      .skipped = !result.applied,
                      .stages = std::move(stages.times),
                      .memory = std::move(stages.memory),
                      .analytic_bubble = pipeline_.analytic_bubble};
  if (const std::optional<End> end = FirstEnd(progress)) {
    metrics.eta_seconds = end->seconds;
    metrics.eta_limit = end->limit;
  }
  if (!metrics.stages.empty()) {
    metrics.measured_bubble = waited / (result.seconds * static_cast<double>(metrics.stages.size()));
  }
  for (size_t s = 0; s < plan_.sublayers.size(); ++s) {
    if (plan_.sublayers[s].layer >= 0) metrics.depth_gradient_norms.push_back(result.gradient.sublayer_norms[s]);
  }
  sink_->OnStep(metrics);
  for (const std::string& text : diagnosis_->AfterStep(metrics, batches.micro_batches)) {
    sink_->OnText(progress.step, TextKind::kDiagnosis, text);
  }
  return absl::OkStatus();
}

}  // namespace hadal
