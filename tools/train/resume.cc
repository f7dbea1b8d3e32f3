#include "tools/train/resume.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/deepening.h"
#include "pipeline/checkpoint/model_settings.h"
#include "pipeline/layout/sum_tree.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/input_kind.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/checkpoint/checkpoint_vocabularies.h"
#include "tools/config/config_loading.h"
#include "tools/config/model_config.h"
#include "tools/config/resolved_config.h"

namespace hadal {
namespace {

constexpr char kAuto[] = "auto";
constexpr int64_t kMaxNoteBytes = 65536;

// Identifies the job that started this process.
struct Job {
  std::string start, slurm_id;  // empty: none
  bool started_before = false;  // Slurm has restarted the job slurm_id

  static Job Of(const Environment& environment) {
    const auto value = [&](const char* name) -> std::string {
      const char* const text = environment(name);
      return text == nullptr ? "" : text;
    };
    int restarts = 0;
    return {.start = value("HADAL_JOB_START"),
            .slurm_id = value("SLURM_JOB_ID"),
            .started_before = absl::SimpleAtoi(value("SLURM_RESTART_COUNT"), &restarts) && restarts > 0};
  }
  bool named() const { return !start.empty() || !slurm_id.empty(); }
};

struct Note {
  std::string job_start, slurm_id, asked;
  int64_t step = 0;

  bool IsOf(const Job& job) const {
    return (!job_start.empty() && job_start == job.start) ||
           (job.started_before && !slurm_id.empty() && slurm_id == job.slurm_id);
  }
  std::string Text() const { return absl::StrCat(job_start, "\n", slurm_id, "\n", asked, "\n", step, "\n"); }
};

std::string NotePath(const std::string& run_directory) {
  return JoinPath(CheckpointsDirectory(run_directory), kResumeRequestName);
}

// Returns nullopt if the note does not exist or is malformed; the request then still applies.
std::optional<Note> ReadNote(const std::string& run_directory) {
  const absl::StatusOr<std::string> text = ReadFile(NotePath(run_directory), kMaxNoteBytes);
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  constexpr size_t kLines = 5;  // the last one is empty
  Note note;
  if (lines.size() != kLines || !absl::SimpleAtoi(lines[3], &note.step)) return std::nullopt;
  note.job_start = lines[0];
  note.slurm_id = lines[1];
  note.asked = lines[2];
  return note;
}

// Of a checkpoint of an older hadal it is not known what was read, but by the settings that the order depends on.
absl::Status CheckOrder(const FoundCheckpoint& found, const config::RunConfig& before,
                        const config::RunConfig& config) {
  const TrainingProgress& progress = found.manifest.progress;
  if (!progress.place.texts.empty() || progress.step == 0) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const std::vector<ConfigDifference> differences, CompareConfigs(before, config));
  const auto orders = [](const ConfigDifference& difference) {
    return difference.field == "seed" || difference.field == "data.sampling_temperature" ||
           difference.field == "model.max_positions" || absl::StartsWith(difference.field, "batch.");
  };
  const auto changed = std::find_if(differences.begin(), differences.end(), orders);
  if (changed == differences.end()) return absl::OkStatus();
  return InvalidArgumentError(found.checkpoint.directory,
                              " is of an older hadal and does not say what was read of the training data, and ",
                              changed->field,
                              " has changed since. Resume once without that change, or give --reset data to read the "
                              "data from their beginning.");
}

// An older hadal added up to 3 replicas as now, and more in another order: 0.
void SetSumGroups(config::RunConfig& before) {
  if (before.batch().has_sum_groups()) return;
  before.mutable_batch()->set_sum_groups(before.pipeline().replicas() <= 3 ? before.pipeline().replicas() : 0);
}

// Refuses to continue a run whose settings have changed, unless the user accepts the difference.
// If settings have changed and are accepted, forgets the trend of the losses, which were those of other settings.
absl::Status CheckSettings(const TrainArguments& arguments, FoundCheckpoint& found, const config::RunConfig& config,
                           const std::vector<CheckpointParameter>& model, TrainingSinks& sinks) {
  const std::string& directory = found.checkpoint.directory;
  config::RunConfig before;
  if (const absl::Status read = MergeConfigText(found.manifest.config_text, directory, before); !read.ok()) {
    return InvalidArgumentError(read.message(),
                                " This run was started by another version of hadal, whose config this one does not "
                                "read. It cannot be resumed: start over with --resume never, or in another --run-dir.");
  }
  SetSumGroups(before);
  // Corpora that the checkpoint identifies are compared instead of their paths, which a job may stage anew.
  if (found.manifest.progress.training_data.known()) {
    before.mutable_data()->set_train(config.data().train());
    if (!before.data().validation().empty() && !config.data().validation().empty()) {
      before.mutable_data()->set_validation(config.data().validation());
    }
  }
  HADAL_ASSIGN_OR_RETURN(const std::string difference, ChangesToAccept(before, config));
  if (difference.empty()) return absl::OkStatus();
  if (arguments.accept_changes) {
    if (!arguments.Resets("data")) HADAL_RETURN_IF_ERROR(CheckOrder(found, before, config));
    sinks.Tell(absl::StrCat("resuming ", directory, " with changed settings:\n", absl::StripSuffix(difference, "\n")));
    found.manifest.progress.loss_trend = {};
    return absl::OkStatus();
  }
  const absl::Status fits = CompareParameters(found.manifest.parameters, model);
  const std::string way_on = fits.ok() ? "Give --accept-changes to resume all the same"
                                       : absl::StrCat("It cannot: ", fits.message(), ". Give the settings of before");
  return InvalidArgumentError("this run would resume from ", directory, " with other settings:\n", difference, way_on,
                              ", --resume never to start over, or another --run-dir.");
}

// Refuses to continue with another training corpus, unless the user has chosen to read it from its beginning.
absl::Status CheckTrainingData(const TrainArguments& arguments, const FoundCheckpoint& found, const PreparedRun& run) {
  const DataIdentity now = IdentityOf(run.train->manifest()), before = found.manifest.progress.training_data;
  if (!before.known() || before == now || arguments.Resets("data")) return absl::OkStatus();
  return InvalidArgumentError(found.checkpoint.directory, " was trained on another corpus (", Describe(before),
                              ") than data.train = \"", run.options.train.train_data, "\" (", Describe(now),
                              "), in which its place means nothing. Give the corpus of before, --reset data to "
                              "continue with this one from its beginning, or --init-from ",
                              found.checkpoint.directory, " with another --run-dir for a new run.");
}

// Compares tags and features of the training text. A new run may add tags to a model without.
absl::Status CheckInputs(const FoundCheckpoint& found, const PreparedRun& run, LoadedState loaded) {
  const InputKind given = run.train->manifest().inputs();
  InputKind model = found.manifest.inputs;
  if (model.frame_width == 0) model.frame_width = given.frame_width;  // not recorded; the parameters' shapes tell
  const std::string corpus = absl::StrCat("data.train = \"", run.options.train.train_data, "\"");
  absl::Status same = CheckFeatureKind(model, given, corpus);
  if (same.ok() && (loaded == LoadedState::kAll || model.tags != "none")) same = CheckTags(model, given.tags, corpus);
  if (same.ok()) return same;
  return InvalidArgumentError(found.checkpoint.directory, ": ", same.message(),
                              "; prepare the corpus as the model's (hadal prepare --tags), or begin with new weights");
}

// Whether a model with the same weights computes something else where this field differs. Their shapes tell head_width
// and kv_heads, which may be 0 for the usual ones; the other fields are of initial values and of training.
bool ChangesMeaning(const ConfigDifference& difference) {
  constexpr std::string_view kOfStacks[] = {"norm",        "post_norm_share", "residual_gain", "norm_gain",
                                            "branch_gain", "skip_gain",       "layer_gain",    "second_stream_gain"};
  const std::string name = difference.field.substr(difference.field.rfind('.') + 1);
  if (absl::StartsWith(difference.field, "model.residual.")) {
    return absl::StartsWith(name, "attention_residual_block") || std::ranges::count(kOfStacks, name) > 0;
  }
  return name != "head_width" && name != "kv_heads" && !absl::StartsWith(name, "initial_");
}

// Refuses weights that this run's model would read otherwise than the model they were trained in, unless the user
// accepts the difference; a notice goes to `accepted`. With --deepen gains follow the depth.
absl::Status CheckMeaning(const TrainArguments& arguments, const FoundCheckpoint& found,
                          const config::RunConfig& config, std::string& accepted) {
  HADAL_ASSIGN_OR_RETURN(const ModelOptions model, ParseModelSettings(found.manifest.model_settings));
  config::RunConfig before = config;
  before.mutable_model()->set_heads(model.heads);
  *before.mutable_model()->mutable_block() = ToBlock(model.block);
  config::Residual& residual = *before.mutable_model()->mutable_residual();
  if (!arguments.deepen && model.has_encoder()) *residual.mutable_encoder() = ToStackResidual(model.encoder);
  if (!arguments.deepen && model.has_decoder()) *residual.mutable_decoder() = ToStackResidual(model.decoder);
  HADAL_ASSIGN_OR_RETURN(std::vector<ConfigDifference> differences, CompareConfigs(before, config));
  std::erase_if(differences, [](const ConfigDifference& difference) { return !ChangesMeaning(difference); });
  if (differences.empty()) return absl::OkStatus();
  accepted = absl::StrCat("--init-from ", found.checkpoint.directory, " is of a model with other settings:\n",
                          DifferencesText(differences));
  if (arguments.accept_changes) return absl::OkStatus();
  return InvalidArgumentError(
      accepted, "Its weights mean something else here. Give the settings of before, or --accept-changes.");
}

// Refuses a corpus whose texts begin, end or are masked with other tokens than those that the model was trained with,
// unless the user accepts it; a notice goes to `accepted`.
absl::Status CheckTextTokens(const TrainArguments& arguments, const FoundCheckpoint& found, const PreparedRun& run,
                             std::string& accepted) {
  if (found.manifest.model_settings.empty()) return absl::OkStatus();  // of an older version
  HADAL_ASSIGN_OR_RETURN(const ModelOptions model, ParseModelSettings(found.manifest.model_settings));
  const CorpusManifest& corpus = run.train->manifest();
  const TextForm& form = corpus.form;
  const bool both_masked = model.mask_token >= 0 && corpus.mask_token >= 0;
  if (model.start_token == form.start_token && model.end_token == form.end_token &&
      (!both_masked || model.mask_token == corpus.mask_token)) {
    return absl::OkStatus();
  }
  const auto tokens = [&](int32_t start, int32_t end, int32_t mask) {
    const auto token = [&](int32_t id) { return Printable(run.vocabularies->target.Token(id)); };
    return absl::StrCat(token(start), " before a text, ", token(end), " after it",
                        both_masked ? absl::StrCat(", masked by ", token(mask)) : "");
  };
  absl::StrAppend(&accepted, found.checkpoint.directory, " was trained with ",
                  tokens(model.start_token, model.end_token, model.mask_token), ", and data.train has ",
                  tokens(form.start_token, form.end_token, corpus.mask_token));
  if (arguments.accept_changes) return absl::OkStatus();
  return InvalidArgumentError(accepted, ". Prepare the corpus as the model's (hadal prepare --tokenizer ",
                              found.checkpoint.directory,
                              "/tokenizer.json, --end-token, --mask-token), or give --accept-changes.");
}

// Returns `found`; a notice of new tokens goes to `growth`. Errors: if its vocabularies do not fit the corpus's, or its
// parameters do not fit the model's.
absl::StatusOr<FoundCheckpoint> IfItFits(absl::StatusOr<FoundCheckpoint> found, const PreparedRun& run,
                                         const ModelPlan& model, LoadedState loaded, std::string& growth) {
  if (!found.ok()) return found;
  HADAL_RETURN_IF_ERROR(CheckVocabularies(*found, run.train->manifest(), *run.vocabularies,
                                          loaded == LoadedState::kWeights ? &growth : nullptr));
  HADAL_RETURN_IF_ERROR(CheckInputs(*found, run, loaded));
  const absl::StatusOr<ModelPlan> shallow = PlanOfCheckpoint(found->manifest, found->checkpoint.directory);
  const auto deepened = [&](DeepeningRule rule) {
    return shallow.ok() ? DeepenedParameters(*shallow, model, rule).status() : shallow.status();
  };
  const std::optional<DeepeningRule> rule = DeepeningOf(loaded);
  const absl::Status fits = rule ? deepened(*rule)
                            : !growth.empty()
                                ? CompareBesideRows(found->manifest.parameters, model)
                                : CompareParameters(found->manifest.parameters, DescribeParameters(model));
  if (fits.ok()) return found;
  const bool can_split = loaded != LoadedState::kAll && deepened(DeepeningRule::kSplit).ok();
  const char* const hint = !can_split ? "" : rule ? "; --deepen-rule split allows it" : "; --deepen repeats its layers";
  return InvalidArgumentError(found->checkpoint.directory, ": ", fits.message(), hint);
}

}  // namespace

int64_t AppliedStep(const std::string& run_directory, const std::string& asked, const Environment& environment) {
  const std::optional<Note> note = asked == kAuto ? std::nullopt : ReadNote(run_directory);
  if (!note || note->asked != asked || !note->IsOf(Job::Of(environment))) return -1;
  return note->step;
}

absl::StatusOr<std::string> ResumeOfThisAttempt(const std::string& run_directory, const std::string& asked,
                                                const Environment& environment) {
  const int64_t applied_step = AppliedStep(run_directory, asked, environment);
  if (applied_step < 0) return asked;
  const absl::StatusOr<FoundCheckpoint> newest = FindLatest(run_directory, {.need_moments = true});
  if (absl::IsNotFound(newest.status())) return asked;
  HADAL_RETURN_IF_ERROR(newest.status());
  // Without a newer checkpoint of this run, the request still names where to continue.
  return newest->checkpoint.step > applied_step ? kAuto : asked;
}

std::optional<int32_t> SumGroupsBefore(const std::string& run_directory, const std::string& resume, bool copies) {
  if (resume == "never") return std::nullopt;
  const absl::StatusOr<FoundCheckpoint> found =
      resume == kAuto ? FindLatest(run_directory, {.need_moments = true}) : FindNamed(resume);
  config::RunConfig before;
  std::string text = found.ok() ? found->manifest.config_text : "";
  if (absl::IsNotFound(found.status()) && copies) {
    text = ReadFile(JoinPath(run_directory, kResolvedConfigName), kMaxNoteBytes).value_or("");
  }
  if (text.empty() || !MergeConfigText(text, resume, before).ok()) return std::nullopt;
  SetSumGroups(before);
  return before.batch().sum_groups();
}

int32_t SumGroupsOf(const TrainArguments& arguments, const std::string& request, const TrainOptions& options) {
  const int32_t replicas = options.pipeline.replicas;
  const std::string resume = request == arguments.StartRequest() ? arguments.resume : kAuto;
  if (options.batch.sum_groups != 0) return options.batch.sum_groups;
  const int32_t groups =
      SumGroupsBefore(arguments.run_directory, resume, options.checkpoint.memory_every_steps > 0).value_or(0);
  return groups > 0 && MayDivide(groups, replicas) ? groups : replicas;
}

absl::Status NoteResume(const std::string& run_directory, const std::string& asked, int64_t step,
                        const Environment& environment) {
  const Job job = Job::Of(environment);
  if (asked == kAuto || !job.named()) return absl::OkStatus();
  const Note note{.job_start = job.start, .slurm_id = job.slurm_id, .asked = asked, .step = step};
  HADAL_RETURN_IF_ERROR(MakeDirectories(CheckpointsDirectory(run_directory)));
  return ReplaceFile(NotePath(run_directory), note.Text(), "new");
}

absl::StatusOr<FoundCheckpoint> ChooseResume(const TrainArguments& arguments, const std::string& resume,
                                             int64_t before_step, const config::RunConfig& config,
                                             const std::vector<CheckpointParameter>& model, TrainingSinks& sinks) {
  if (resume == arguments.resume && resume != "auto" && !arguments.init_from.empty()) {
    return InvalidArgumentError("--resume ", resume, " and --init-from ", arguments.init_from,
                                " both name a checkpoint to begin from; give --resume to continue with its moments and "
                                "its place in the corpus, or --init-from to take its weights alone");
  }
  absl::StatusOr<FoundCheckpoint> found =
      resume == "auto" ? FindLatest(arguments.run_directory, {.before_step = before_step, .need_moments = true})
                       : FindNamed(resume);
  if (found.ok()) HADAL_RETURN_IF_ERROR(CheckSettings(arguments, *found, config, model, sinks));
  return found;
}

namespace {

// ChooseResume's checkpoint, if it fits `model`, the training data and the tags of `run`.
absl::StatusOr<FoundCheckpoint> ChooseFitting(const TrainArguments& arguments, const std::string& resume,
                                              int64_t before_step, const PreparedRun& run, const ModelPlan& model,
                                              TrainingSinks& sinks) {
  std::string growth;
  HADAL_ASSIGN_OR_RETURN(FoundCheckpoint found, IfItFits(ChooseResume(arguments, resume, before_step, run.config,
                                                                      DescribeParameters(model), sinks),
                                                         run, model, LoadedState::kAll, growth));
  HADAL_RETURN_IF_ERROR(CheckTrainingData(arguments, found, run));
  std::string changes;
  HADAL_RETURN_IF_ERROR(CheckTextTokens(arguments, found, run, changes));
  if (!changes.empty()) sinks.Tell(changes);
  // With patience the best model is the result: one that this run has not saved is none.
  TrainingProgress& progress = found.manifest.progress;
  const auto unsaved = [&](const ScoredStep& scored) {
    return !PathExists(CheckpointDirectory(arguments.run_directory, scored.step));
  };
  const TrainOptions& options = run.options.train;
  if (options.stop.patience > 0 && options.saves_best() && std::erase_if(progress.best, unsaved) > 0) {
    progress.validations_without_improvement = 0;
  }
  return found;
}

// The checkpoint of --init-from (of a run directory its newest), which fits `model`. Each notice and warning is printed
// once: `printed` has those of earlier calls.
absl::StatusOr<FoundCheckpoint> ChooseWeights(const TrainArguments& arguments, const PreparedRun& run,
                                              const ModelPlan& model, LoadedState weights, TrainingSinks& sinks,
                                              std::set<std::string>& printed) {
  HADAL_ASSIGN_OR_RETURN(const std::string of_run, RunOf(arguments.init_from));
  absl::StatusOr<FoundCheckpoint> found =
      of_run.empty() ? FindNamed(arguments.init_from) : FindLatest(of_run, FindOptions());
  HADAL_RETURN_IF_ERROR(found.status());
  if (IsOfRun(found->checkpoint.directory, arguments.run_directory)) {
    return InvalidArgumentError(
        "--init-from ", arguments.init_from,
        " is in --run-dir itself, whose checkpoints a new run sets aside; choose another --run-dir");
  }
  for (const RejectedCheckpoint& rejected : found->rejected) {
    if (!printed.insert(rejected.directory).second) continue;
    sinks.Warn(absl::StrCat("CHECKPOINT REFUSED: ", rejected.directory, ": ", rejected.reason.message()));
  }
  std::string growth;
  found = IfItFits(std::move(found), run, model, weights, growth);
  HADAL_RETURN_IF_ERROR(found.status());
  if (!growth.empty()) growth = absl::StrCat(found->checkpoint.directory, ": ", growth);
  std::string changes;
  HADAL_RETURN_IF_ERROR(CheckMeaning(arguments, *found, run.config, changes));
  if (growth.empty()) HADAL_RETURN_IF_ERROR(CheckTextTokens(arguments, *found, run, changes));  // else ids have moved
  for (const std::string& notice : {absl::StrCat("weights from ", found->checkpoint.directory), growth,
                                    std::string(absl::StripSuffix(changes, "\n"))}) {
    if (!notice.empty() && printed.insert(notice).second) sinks.Tell(notice);
  }
  return found;
}

// Loads the weights of --init-from. Blocking: all ranks call it.
absl::Status LoadWeights(const TrainArguments& arguments, const PreparedRun& run, int rank, TrainingSinks& sinks,
                         Trainer& trainer) {
  const bool zeros = arguments.deepen && arguments.deepen_rule == "zero";
  const LoadedState weights = zeros              ? LoadedState::kWeightsOfShallowerAndZeros
                              : arguments.deepen ? LoadedState::kWeightsOfShallower
                                                 : LoadedState::kWeights;
  const RateOptions& rate = run.options.train.rate;
  if (rank == 0 && zeros && (rate.warmup_updates == 0 || rate.schedule == RateSchedule::kTFixup)) {
    sinks.Tell(
        "--deepen-rule zero without a warm-up: Adam's first update moves every weight of the added layers that is 0 by "
        "the full rate; set learning_rate.warmup_updates");
  }
  const ModelPlan& model = trainer.engine().state().plan();
  std::set<std::string> printed;
  for (int tries = 1;; ++tries) {
    const absl::Status status = trainer.InitializeFrom(
        rank == 0 ? ChooseWeights(arguments, run, model, weights, sinks, printed) : FoundCheckpoint(), weights);
    // A run in progress may have removed the checkpoint before every rank has opened it.
    if (!absl::IsNotFound(status) || tries == kMostChoices) return AdviseAnotherCheckpoint(status);
  }
}

}  // namespace

absl::Status LoadInitialState(const TrainArguments& arguments, const std::string& request, int64_t applied_step,
                              const PreparedRun& run, int rank, TrainingSinks& sinks, Trainer& trainer) {
  const bool done_before = request != arguments.StartRequest();  // by an earlier attempt of this job
  const std::string resume = done_before ? kAuto : arguments.resume;
  const auto choose = [&](int64_t before_step, const std::string& copy) {
    return ChooseFitting(arguments, copy.empty() ? resume : copy, before_step, run, trainer.engine().state().plan(),
                         sinks);
  };
  bool resumed = false;
  if (resume == kAuto) {
    HADAL_ASSIGN_OR_RETURN(resumed, trainer.ResumeLatest(choose));
  } else if (resume != "never") {
    HADAL_RETURN_IF_ERROR(AdviseAnotherCheckpoint(
        trainer.Resume(rank == 0 ? choose(std::numeric_limits<int64_t>::max(), "") : FoundCheckpoint())));
    resumed = true;
  }
  // A copy in memory may hold steps after the reset that no checkpoint has.
  const bool resets = resumed && !done_before && (applied_step < 0 || trainer.progress().step <= applied_step);
  if (resets && arguments.Resets("data")) HADAL_RETURN_IF_ERROR(trainer.BeginDataAnew());
  if (resets && arguments.Resets("best")) trainer.ForgetBest();
  if (resumed && rank == 0 && !done_before && !arguments.init_from.empty()) {
    sinks.Tell(absl::StrCat("resuming ", arguments.run_directory, ": --init-from ", arguments.init_from,
                            " is for the beginning of a run and is not read; another --run-dir begins one"));
  }
  if (resumed || arguments.init_from.empty()) return absl::OkStatus();
  return LoadWeights(arguments, run, rank, sinks, trainer);
}

}  // namespace hadal
