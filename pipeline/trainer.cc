#include "pipeline/trainer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "layers/parameter_store.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/instruments/failed_step_search.h"
#include "pipeline/learning_rate.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Duration WaitTimeout(const TrainOptions& options) { return absl::Seconds(options.pipeline.wait_timeout_seconds); }

BatchCapacity BatchCapacityOf(const TrainOptions& options) {
  return {.source_rows = options.batch.source_tokens,
          .target_rows = options.batch.target_tokens,
          .sentence_rows = options.model.max_positions};
}

// Micro-batches whose forward takes as long as a step of m micro-batches on each of R replicas of S stages: with a
// backward of two forwards, a step takes 3 (m + S - 1) forwards of a stage.
int64_t ValidationPart(const PipelineLayout& pipeline) {
  const int64_t replicas = pipeline.grid.replicas, each = std::max<int64_t>(pipeline.step_micro_batches / replicas, 1);
  return replicas * (3 * each + 2 * (pipeline.grid.stages - 1));
}

// What the best checkpoints are chosen by: two scores compare only if all of this is the same.
std::string MetricOf(const TrainOptions& options, const Corpus& sentences) {
  const ValidationOptions& validation = options.validation;
  if (validation.metric == ValidationMetric::kNll || !options.pipeline.decoder) return "nll";
  const BeamOptions& beam = options.pipeline.decoder->beam;
  const std::string name = validation.metric == ValidationMetric::kChrf
                               ? "chrf"
                               : absl::StrCat("bleu ", ToWord(kBleuTokenizers, validation.bleu_tokenizer));
  return absl::StrCat(
      name, " of ", validation.bleu_sentences, " sentences, beam ", beam.beam, ", length penalty ", beam.length_penalty,
      ", at most ", beam.max_length_a, "x+", beam.max_length_b, ", n-grams ", beam.no_repeat_ngram,
      // The nll's sentences identify these only if they are all.
      validation.max_sentences > 0 ? absl::StrCat(" of ", Describe(IdentityOf(sentences.manifest()))) : "");
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline,
                 const TrainingSurroundings& surroundings, SamplingOrder order)
    : options_(options),
      plan_(plan),
      pipeline_(pipeline),
      surroundings_(surroundings),
      order_(std::move(order)),
      collectives_(surroundings.communicator, WaitTimeout(options)),
      health_(plan, options.health),
      report_(options_, plan, pipeline, collectives_, IsMain() ? &surroundings.sink : nullptr) {
  progress_.seed = options.seed;
  progress_.place = order_.place();
  progress_.training_data = IdentityOf(surroundings.train.manifest());
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainOptions& options, const ModelPlan& plan,
                                                         const PipelineLayout& pipeline,
                                                         const TrainingSurroundings& surroundings,
                                                         TrainingCheckpointsOptions checkpoints) {
  // A rank's host may have another corpus by now, or none.
  Collectives collectives(surroundings.communicator, WaitTimeout(options));
  absl::StatusOr<SamplingOrder> order =
      SamplingOrder::Create(surroundings.train, {.seed = options.seed,
                                                 .capacity = BatchCapacityOf(options),
                                                 .micro_batches_per_step = options.batch.micro_batches,
                                                 .temperatures = options.sampling_temperature,
                                                 .spec_augment = options.spec_augment,
                                                 .masking = options.masking});
  HADAL_RETURN_IF_ERROR(collectives.AllOk(order.status(), "reading the training corpus"));
  HADAL_RETURN_IF_ERROR(AsCommonError(CheckLeftOut(order->too_long(), surroundings.train.size(), options)));
  std::unique_ptr<Trainer> trainer(new Trainer(options, plan, pipeline, surroundings, *std::move(order)));
  if (surroundings.validation != nullptr && options.validation.every_steps > 0) {
    absl::StatusOr<Validator> validator = Validator::Create({.corpus = *surroundings.validation,
                                                             .capacity = BatchCapacityOf(options),
                                                             .max_sentences = options.validation.max_sentences,
                                                             .masking = options.masking,
                                                             .bleu = surroundings.validation_bleu,
                                                             .metric = options.validation.metric,
                                                             .keep_best = options.checkpoint.keep_best,
                                                             .stop_requested = surroundings.stop_requested,
                                                             .part = ValidationPart(pipeline),
                                                             .sink = trainer->IsMain() ? &surroundings.sink : nullptr});
    HADAL_RETURN_IF_ERROR(collectives.AllOk(validator.status(), "reading the validation corpus"));
    trainer->validator_ = *std::move(validator);
    trainer->progress_.validation_data = trainer->validator_->identity();
    trainer->progress_.validation_metric = MetricOf(options, *surroundings.validation);
  }
  Communicator& communicator = surroundings.communicator;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create({.plan = plan,
                      .pipeline = pipeline,
                      .stream = surroundings.stream,
                      .purpose = Purpose::kTraining,
                      .world = communicator,
                      .timeout = WaitTimeout(options),
                      .device_communicator = surroundings.device_communicator});
  HADAL_RETURN_IF_ERROR(trainer->collectives_.AllOk(engine.status(), "allocating memory"));
  trainer->engine_ = *std::move(engine);
  trainer->tracer_.emplace(surroundings.trace, communicator, trainer->engine_->trace(), WaitTimeout(options));
  if (options.depth.enabled) {
    absl::StatusOr<std::unique_ptr<DepthRecorder>> depth = DepthRecorder::Create(
        options, plan, pipeline, surroundings.train, *trainer->engine_, communicator, WaitTimeout(options));
    HADAL_RETURN_IF_ERROR(collectives.AllOk(depth.status(), "reading the probe's sentences"));
    trainer->depth_ = *std::move(depth);
  }
  std::unique_ptr<MemoryCopies> copies;
  if (options.checkpoint.memory_every_steps > 0) {
    copies = std::make_unique<MemoryCopies>(options, surroundings.hosts, communicator);
  }
  trainer->checkpoints_ = std::make_unique<TrainingCheckpoints>(
      std::move(checkpoints), trainer->engine_->state(), communicator.rank(), trainer->collectives_,
      trainer->IsMain() ? &surroundings.sink : nullptr, &trainer->engine_->trace(), std::move(copies));
  return trainer;
}

absl::StatusOr<bool> Trainer::ResumeLatest(const FindCheckpoint& find) {
  HADAL_ASSIGN_OR_RETURN(const std::optional<TrainingProgress> progress, checkpoints_->LoadLatest(find));
  if (!progress.has_value()) return false;
  if (checkpoints_->loaded_copy()) Note(absl::StrCat("step ", progress->step, " comes from copies in memory"));
  HADAL_RETURN_IF_ERROR(Continue(*progress));
  return true;
}

absl::Status Trainer::Resume(absl::StatusOr<FoundCheckpoint> chosen) {
  if (chosen.ok()) resumed_from_ = *chosen;
  HADAL_ASSIGN_OR_RETURN(const TrainingProgress progress, checkpoints_->Load(std::move(chosen), LoadedState::kAll));
  return Continue(progress);
}

absl::Status Trainer::Continue(const TrainingProgress& progress) {
  progress_ = progress;
  progress_.seed = options_.seed;  // another one, if the change was accepted
  HADAL_RETURN_IF_ERROR(AsCommonError(ContinueData(progress)));
  if (validator_) ContinueValidation(progress);
  health_.Continue(progress_.skipped_in_a_row);
  weights_loaded_ = true;
  return engine_->DistributeWeights();
}

absl::Status Trainer::ContinueData(const TrainingProgress& loaded) {
  progress_.training_data = IdentityOf(surroundings_.train.manifest());
  if (loaded.training_data.known() && loaded.training_data != progress_.training_data) {
    Note(absl::StrCat("the training data are another corpus (", Describe(progress_.training_data), ", before ",
                      Describe(loaded.training_data), ")"));
    return BeginDataAnew();
  }
  HADAL_RETURN_IF_ERROR(order_.Continue(loaded.place));
  if (loaded.place.texts.empty()) {
    order_.Skip(loaded.step * options_.batch.micro_batches);
    Note(
        "the checkpoint is of an older hadal, which did not record what was read of which data: as many micro-batches "
        "as were trained are taken as read of the present corpus, and a best nll as the present validation set's");
  }
  progress_.place = order_.place();
  return absl::OkStatus();
}

absl::Status Trainer::BeginDataAnew() {
  HADAL_RETURN_IF_ERROR(order_.Continue(DataPlace()));
  progress_.place = order_.place();
  progress_.epochs_done = 0;
  progress_.loss_trend = {};
  Note("the training data are read from their beginning, and epochs count from there");
  return absl::OkStatus();
}

void Trainer::ContinueValidation(const TrainingProgress& before) {
  progress_.validation_data = validator_->identity();
  progress_.validation_metric = MetricOf(options_, *surroundings_.validation);
  const bool other_data = before.validation_data.known() && before.validation_data != progress_.validation_data;
  const bool other_metric = !before.best.empty() && before.validation_metric != progress_.validation_metric;
  if (other_data) {
    Note(absl::StrCat("the validation set is another one (", Describe(progress_.validation_data), ", before ",
                      Describe(before.validation_data), ")"));
  }
  if (other_metric) {
    Note(absl::StrCat("the best checkpoint is chosen by ", progress_.validation_metric, ", before by ",
                      before.validation_metric));
  }
  if (other_data || other_metric) ForgetBest();
}

void Trainer::ForgetBest() {
  if (!validator_ || progress_.step == 0) return;
  progress_.validation_nll = std::numeric_limits<double>::infinity();
  progress_.best.clear();
  progress_.validations_without_improvement = 0;
  progress_.validation_due = true;
  Note("best and patience are reset, with a validation of this step");
}

absl::Status Trainer::InitializeFrom(absl::StatusOr<FoundCheckpoint> chosen, LoadedState weights) {
  HADAL_ASSIGN_OR_RETURN(const TrainingProgress loaded, checkpoints_->Load(std::move(chosen), weights));
  progress_.updates_before = loaded.growth_update();
  weights_loaded_ = true;
  return engine_->DistributeWeights();
}

StepScalars Trainer::Scalars() const {
  return {.seed = progress_.seed,
          .step = progress_.step,
          .update = progress_.update + 1,
          .training = true,
          .gradient_scale = 1.0f / static_cast<float>(std::max<int64_t>(batches_.target_tokens, 1)),
          .updates_before = progress_.updates_before};
}

StepVote Trainer::Vote() const {
  if (!checkpoints_->OwnershipLost().ok()) return StepVote::kLost;
  if (StopRequested()) return StepVote::kRequested;
  if (!IsMain()) return StepVote::kContinue;
  const double stop_minutes = options_.stop.minutes, save_minutes = options_.checkpoint.every_minutes;
  if (stop_minutes > 0 && report_.Seconds() >= stop_minutes * 60) return StepVote::kOutOfTime;
  const bool save = save_minutes > 0 && checkpoints_->SecondsSinceSave() >= save_minutes * 60;
  return save ? StepVote::kSave : StepVote::kContinue;
}

absl::Status Trainer::LostError() const {
  HADAL_RETURN_IF_ERROR(AsCommonError(checkpoints_->OwnershipLost()));
  return AsCommonError(
      AbortedError("rank 0 may no longer write into the run directory ", options_.run_directory, "; it says why"));
}

absl::StatusOr<StepResult> Trainer::Step() {
  HADAL_RETURN_IF_ERROR(order_.Next(progress_.step, batches_));
  const double learning_rate = LearningRate(options_.rate, progress_.update + 1, options_.stop.steps);
  UpdateSettings update{.optimizer = options_.optimizer,
                        .learning_rate = learning_rate,
                        .vote = [this] { return Vote(); },
                        .highest_loss = HighestLoss(progress_.loss_trend, options_.health.loss_spike),
                        .before_update = [this] { checkpoints_->BeforeUpdate(surroundings_.stream); }};
  if (depth_) depth_->BeforeStep(progress_.step, update);
  HADAL_ASSIGN_OR_RETURN(StepResult result, engine_->TrainingStep(batches_.micro_batches, Scalars(), update));
  if (result.gradient.vote == StepVote::kLost) {
    // A message in progress cannot be cancelled, and its memory is about to be freed.
    if (checkpoints_->copies() != nullptr) HADAL_RETURN_IF_ERROR(checkpoints_->copies()->AwaitMessages());
    return LostError();
  }
  std::string where;  // of the first failed step in a row
  if (!result.applied && health_.skipped_in_a_row() == 0) {
    const TracePause pause(engine_->trace());
    HADAL_ASSIGN_OR_RETURN(where, LocateFailure(*engine_, batches_.micro_batches, Scalars(), update, collectives_));
    where = absl::StrCat("step ", progress_.step + 1, " failed; ", where);
  }
  ++progress_.step;
  progress_.update += result.applied ? 1 : 0;
  if (result.applied) {
    progress_.validation_nll = std::numeric_limits<double>::infinity();  // it was of the weights before
    if (result.gradient.loss.tokens > 0) {                               // none may be masked
      progress_.loss_trend =
          WithLoss(progress_.loss_trend, result.gradient.loss.MeanLoss(), options_.health.loss_spike);
    }
  }
  progress_.epochs_done = batches_.epochs_done;
  if (progress_.step == 1 && batches_.epochs_done > 1) {
    Warn(absl::StrFormat("a step reads the training text %.4g times; fewer batch.micro_batches make more updates of it",
                         batches_.epochs_done));
  }
  progress_.place = order_.place();
  progress_.target_tokens_seen += result.gradient.loss.tokens;
  for (const PackedBatch& batch : batches_.micro_batches) progress_.samples_seen += batch.sentences();
  progress_.training_seconds += result.seconds;
  HADAL_RETURN_IF_ERROR(report_.Send(*engine_, result, progress_, learning_rate, surroundings_.train, batches_));
  if (depth_) HADAL_RETURN_IF_ERROR(RecordDepth(result));
  const std::string left_out = health_.AfterStep(result, progress_.loss_trend, where);
  progress_.skipped_in_a_row = health_.skipped_in_a_row();
  if (!left_out.empty()) Warn(left_out);
  if (!where.empty() && IsMain()) surroundings_.sink.OnText(progress_.step, TextKind::kDiagnosis, where);
  if (health_.must_go_back()) HADAL_RETURN_IF_ERROR(GoBack());
  return result;
}

absl::Status Trainer::RecordDepth(const StepResult& result) {
  HADAL_ASSIGN_OR_RETURN(const std::optional<DepthMetrics> metrics,
                         depth_->AfterStep(progress_.step - 1, progress_.update, progress_.growth_update(), result));
  if (metrics.has_value() && IsMain()) surroundings_.sink.OnDepth(*metrics);
  return absl::OkStatus();
}

void Trainer::Note(const std::string& text) {
  if (std::find(notes_.begin(), notes_.end(), text) != notes_.end()) return;
  if (!announced_) return notes_.push_back(text);
  if (IsMain()) surroundings_.sink.OnText(progress_.step, TextKind::kNotice, text);
}

void Trainer::Warn(std::string_view text) {
  if (IsMain()) surroundings_.sink.OnText(progress_.step, TextKind::kWarning, text);
}

absl::Status Trainer::GoBack() {
  HADAL_RETURN_IF_ERROR(checkpoints_->Finish(progress_));
  const TrainingProgress now = progress_;
  const int32_t skipped = health_.skipped_in_a_row();
  // A run that was stopped among skipped steps has a checkpoint of the weights that may be what makes them fail.
  const auto find = [this](int64_t before_step, const std::string& /*copy*/) -> absl::StatusOr<FoundCheckpoint> {
    while (true) {
      absl::StatusOr<FoundCheckpoint> found =
          FindLatest(options_.run_directory, {.before_step = before_step, .need_moments = true});
      // Until its first save, a run that began with another run's checkpoint has no other. Best scores and the trend of
      // losses are as they were then: without those that Resume()'s caller has left out.
      if (absl::IsNotFound(found.status()) && resumed_from_ && resumed_from_->checkpoint.step < before_step &&
          FindNamed(resumed_from_->checkpoint.directory).ok()) {
        found = *resumed_from_;
      }
      if (!found.ok() || found->manifest.progress.skipped_in_a_row == 0) return found;
      before_step = found->checkpoint.step;
    }
  };
  HADAL_ASSIGN_OR_RETURN(const bool loaded, ResumeLatest(find));
  health_.Continue(skipped);  // GoBack's error counts them
  const int64_t step = progress_.step;
  absl::StatusOr<TrainingProgress> progress = health_.GoBack(now, loaded ? std::optional(progress_) : std::nullopt);
  if (!progress.ok()) return AsCommonError(progress.status());
  progress_ = *progress;
  HADAL_RETURN_IF_ERROR(AsCommonError(order_.Continue(progress_.place)));
  Warn(absl::StrCat(skipped, " steps in a row were left out; went back to the checkpoint of step ", step));
  return absl::OkStatus();
}

absl::Status Trainer::MakeNewWeights() {
  if (weights_loaded_) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline_, engine_->stage().parameters(), options_.seed,
                                             surroundings_.stream, engine_->grid().pipeline(), WaitTimeout(options_)));
  return engine_->DistributeWeights();
}

absl::Status Trainer::ProfileNewWeights() {
  if (weights_loaded_) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(order_.Next(progress_.step, batches_));
  HADAL_RETURN_IF_ERROR(order_.Continue(progress_.place));  // the first step reads them again
  HADAL_ASSIGN_OR_RETURN(const std::vector<ResidualProfile::Entry> profile,
                         engine_->ProfileResidualStream(batches_.micro_batches[0], Scalars()));
  if (profile.empty() || !IsMain()) return absl::OkStatus();
  const auto largest = std::ranges::max_element(profile, {}, &ResidualProfile::Entry::omega);
  surroundings_.sink.OnText(progress_.step, TextKind::kNotice,
                            absl::StrFormat("profiled %d sublayers: omega from 1 to %.3f, %s", profile.size(),
                                            largest->omega, plan_.ParameterName(largest->parameter)));
  return absl::OkStatus();
}

std::optional<StopReason> Trainer::ReachedLimit() const {
  const StopOptions& stop = options_.stop;
  if (stop.steps > 0 && progress_.step >= stop.steps) return StopReason::kSteps;
  if (stop.epochs > 0 && progress_.epochs_done >= stop.epochs) return StopReason::kEpochs;
  if (stop.patience > 0 && progress_.validations_without_improvement >= stop.patience) return StopReason::kPatience;
  return std::nullopt;
}

absl::StatusOr<std::optional<StopReason>> Trainer::AfterStep(StepVote vote, bool validation_due) {
  if (validation_due && vote != StepVote::kRequested) {
    HADAL_ASSIGN_OR_RETURN(const bool asked, collectives_.AnyRank(StopRequested(), "a request to stop"));
    if (asked) vote = StepVote::kRequested;
  }
  progress_.validation_due = validation_due && vote == StepVote::kRequested;
  if (progress_.validation_due) return StopReason::kRequested;
  if (validation_due) {
    const int32_t without_improvement = progress_.validations_without_improvement;
    HADAL_ASSIGN_OR_RETURN(const bool validated, validator_->Run(*engine_, progress_));
    progress_.validation_due = !validated;
    if (!validated) return StopReason::kRequested;
    // Stopping and resuming must not use up patience.
    if (progress_.step % options_.validation.every_steps != 0) {
      progress_.validations_without_improvement =
          std::min(progress_.validations_without_improvement, without_improvement);
    }
  }
  std::optional<StopReason> reason = ReachedLimit();
  if (!reason.has_value() && vote >= StepVote::kOutOfTime) {
    reason = vote == StepVote::kOutOfTime ? StopReason::kMinutes : StopReason::kRequested;
  }
  const bool is_best = validation_due && progress_.best_step() == progress_.step;
  const bool is_kept = validation_due && progress_.IsAmongBest(progress_.step);
  save_due_ = save_due_ || vote == StepVote::kSave;
  for (const int64_t every : {options_.checkpoint.every_steps, options_.checkpoint.keep_every}) {
    save_due_ = save_due_ || (every > 0 && progress_.step % every == 0);
  }
  // In the middle of skipped steps the weights may be what makes them fail; the last checkpoint is from before, and a
  // save that is due waits for them to end.
  const bool saves = health_.skipped_in_a_row() == 0 && (save_due_ || (is_kept && options_.saves_best()));
  save_due_ = save_due_ && !saves;
  const int64_t copy_every = options_.checkpoint.memory_every_steps;
  copy_due_ = !saves && (copy_due_ || (copy_every > 0 && progress_.step % copy_every == 0));
  if (saves) {
    HADAL_RETURN_IF_ERROR(checkpoints_->Begin(progress_, is_best));
  } else if (copy_due_ && health_.skipped_in_a_row() == 0 && !checkpoints_->saving() && !reason.has_value()) {
    if (checkpoints_->copies() != nullptr) checkpoints_->Start(progress_, /*is_best=*/false, /*in_memory=*/true);
    copy_due_ = false;
  }
  return reason;
}

void Trainer::Announce() {
  RunInfo run = DescribeRun(options_, plan_, pipeline_, surroundings_.stream.threads(), progress_.step + 1);
  run.attempt = checkpoints_->attempt();
  run.from_copy = checkpoints_->loaded_copy();
  surroundings_.sink.OnStart(run);
  std::vector<std::string> left_out = {
      DescribeLeftOut("training", order_.too_long(), surroundings_.train.size(), options_)};
  if (validator_) {
    left_out.push_back(
        DescribeLeftOut("validation", validator_->too_long(), surroundings_.validation->size(), options_));
  }
  for (const std::string& text : left_out) {
    if (!text.empty()) surroundings_.sink.OnText(progress_.step, TextKind::kWarning, text);
  }
  for (const std::string& text : notes_) surroundings_.sink.OnText(progress_.step, TextKind::kNotice, text);
  const bool weighs = std::ranges::any_of(options_.sampling_temperature, [](double t) { return t != 1; });
  if (weighs && surroundings_.train.manifest().corpora.size() < 2) {
    surroundings_.sink.OnText(progress_.step, TextKind::kWarning,
                              "data.sampling_temperature has no effect: data.train is one text; prepare each text or "
                              "direction as files of its own");
  }
  if (options_.spec_augment.active() && surroundings_.train.manifest().cmvn == "none") {
    surroundings_.sink.OnText(progress_.step, TextKind::kWarning,
                              "data.spec_augment sets masked features to 0, the mean of normalised ones, and those of "
                              "data.train were made with --cmvn none; make them with --cmvn utterance, or leave the "
                              "masks out");
  }
}

absl::StatusOr<TrainingOutcome> Trainer::Run() {
  if (attempt().empty()) HADAL_RETURN_IF_ERROR(Claim());
  HADAL_RETURN_IF_ERROR(MakeNewWeights());
  report_.Restart(progress_);
  if (IsMain()) Announce();
  announced_ = true;
  HADAL_RETURN_IF_ERROR(ProfileNewWeights());
  if (depth_) {
    HADAL_ASSIGN_OR_RETURN(const std::string unrecorded, depth_->Begin(progress_.step, progress_.growth_update()));
    if (IsMain() && !unrecorded.empty()) surroundings_.sink.OnText(progress_.step, TextKind::kWarning, unrecorded);
  }
  std::optional<StopReason> reason = ReachedLimit();
  const int64_t validate_every = validator_ ? options_.validation.every_steps : 0;
  if (progress_.validation_due && validate_every > 0) {
    HADAL_ASSIGN_OR_RETURN(reason, AfterStep(StepVote::kContinue, /*validation_due=*/true));
  }
  while (!reason.has_value()) {
    HADAL_RETURN_IF_ERROR(tracer_->BeforeStep(progress_.step + 1));
    if (surroundings_.before_step) surroundings_.before_step(progress_.step);
    HADAL_ASSIGN_OR_RETURN(const StepResult result, Step());
    HADAL_RETURN_IF_ERROR(checkpoints_->Poll(progress_));
    // A run's last weights are validated, so that they can be its best.
    const bool ends = result.gradient.vote == StepVote::kOutOfTime || ReachedLimit().has_value();
    const bool validation_due = validate_every > 0 && (progress_.step % validate_every == 0 || ends);
    HADAL_ASSIGN_OR_RETURN(reason, AfterStep(result.gradient.vote, validation_due));
    HADAL_RETURN_IF_ERROR(tracer_->AfterStep(progress_.step));
  }
  HADAL_RETURN_IF_ERROR(checkpoints_->Finish(progress_));
  // A requested stop always saves, so that the run can resume.
  if (options_.checkpoint.save_at_end || *reason == StopReason::kRequested) {
    HADAL_RETURN_IF_ERROR(checkpoints_->SaveAtEnd(progress_, progress_.best_step() == progress_.step));
  }
  if (checkpoints_->copies() != nullptr && checkpoints_->IsSaved(progress_)) checkpoints_->copies()->Remove();
  HADAL_RETURN_IF_ERROR(tracer_->Finish());
  const RateOptions& rate = options_.rate;
  if (*reason == StopReason::kEpochs && rate.schedule != RateSchedule::kTFixup &&
      progress_.update < rate.warmup_updates) {
    Warn(absl::StrCat("the run ended inside the warm-up: update ", progress_.update, " of ", rate.warmup_updates));
  } else if (*reason == StopReason::kEpochs && EndsWithRun(rate.schedule)) {
    const double last = LearningRate(rate, progress_.update, options_.stop.steps);
    constexpr double kAlmostFallen = 0.1;
    if (last > rate.end_rate + kAlmostFallen * (rate.peak - rate.end_rate)) {
      Warn(absl::StrCat("stop.epochs ended the run at step ", progress_.step, ", and its learning rate falls until ",
                        "stop.steps = ", options_.stop.steps, ": it was still ", last, " of ", rate.peak,
                        "; set stop.steps to the steps of these epochs"));
    }
  }
  if (tracer_->missed()) Note("no trace: this start trained none of the steps that --trace names");
  return TrainingOutcome{*reason, progress_, checkpoints_->last_directory(), checkpoints_->IsSaved(progress_)};
}

}  // namespace hadal
