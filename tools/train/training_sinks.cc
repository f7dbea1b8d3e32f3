#include "tools/train/training_sinks.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"
#include "launch/job_report.h"
#include "pipeline/checkpoint/run_owner.h"
#include "runtime/data/input_kind.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_origin.h"
#include "tools/config/resolved_config.h"
#include "tools/output/metrics_jsonl.h"
#include "tools/output/progress.h"
#include "tools/output/staged_output.h"
#include "tools/output/tensorboard.h"
#include "tools/output/trace_writer.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

std::vector<Attachment> Attach(const CorpusVocabularies& vocabularies, bool shared) {
  const auto attach = [](const Vocabulary& vocabulary, const std::string& stem) {
    return Attachment{vocabulary.FileName(stem), vocabulary.contents()};
  };
  if (shared) return {attach(vocabularies.target, kSharedVocabulary)};
  return {attach(vocabularies.source, kSourceVocabulary), attach(vocabularies.target, kTargetVocabulary)};
}

// Opens the corpus whose prefix the config field `field` gives.
absl::StatusOr<Corpus> OpenCorpus(const char* field, const std::string& prefix, const CorpusShare& share) {
  absl::StatusOr<Corpus> corpus = Corpus::Open(prefix, share);
  if (!absl::IsNotFound(corpus.status())) return corpus;
  return NotFoundError(corpus.status().message(), ". ", field,
                       " is a prefix of files, the one that `hadal prepare` prints at its end");
}

// Opens both corpora, checks that they use the same vocabularies, and sets what of the options follows from them.
absl::Status OpenCorpora(const CorpusShare& share, PreparedRun& run) {
  TrainOptions& options = run.options.train;
  HADAL_ASSIGN_OR_RETURN(run.train, OpenCorpus("data.train", options.train_data, share));
  const CorpusManifest& manifest = run.train->manifest();
  if (!options.validation_data.empty()) {
    HADAL_ASSIGN_OR_RETURN(run.validation, OpenCorpus("data.validation", options.validation_data, share));
    const CorpusManifest& held_out = run.validation->manifest();
    if (held_out.source_vocabulary.crc32c != manifest.source_vocabulary.crc32c ||
        held_out.target_vocabulary.crc32c != manifest.target_vocabulary.crc32c ||
        held_out.form.start_token != manifest.form.start_token || held_out.form.end_token != manifest.form.end_token ||
        (held_out.form.block > 0 && manifest.form.block > 0 &&
         held_out.form.document_mask != manifest.form.document_mask) ||
        !CheckTags(manifest.inputs(), held_out.tags, "").ok() ||
        !CheckFeatureKind(manifest.inputs(), held_out.inputs(), "").ok()) {
      return InvalidArgumentError(
          "data.train = \"", options.train_data, "\" and data.validation = \"", options.validation_data,
          "\" were prepared with different vocabularies, document masks, tags or features. Prepare them together.");
    }
  }
  return FollowCorpus(manifest, options);
}

// Fills `run` from run.config.
absl::Status FollowConfig(const TrainArguments& arguments, const CorpusShare& share, PreparedRun& run) {
  if (arguments.run_directory.empty()) {
    return InvalidArgumentError("--run-dir is empty (a variable that is not set?); name a directory");
  }
  HADAL_ASSIGN_OR_RETURN(run.options, MakeRunOptions(run.config));
  HADAL_RETURN_IF_ERROR(CheckFieldsWithEffect(run.config));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> unheard, LayersWithoutEffect(arguments.config.files));
  run.options.warnings.insert(run.options.warnings.end(), unheard.begin(), unheard.end());
  TrainOptions& options = run.options.train;
  HADAL_RETURN_IF_ERROR(CheckTrainable(options));
  HADAL_ASSIGN_OR_RETURN(run.config_text, ResolvedConfigText(run.config));
  options.run_directory = arguments.run_directory;
  HADAL_ASSIGN_OR_RETURN(run.time_limit, TimeLimit::Make(arguments.stop_after));
  HADAL_RETURN_IF_ERROR(OpenCorpora(share, run));
  HADAL_RETURN_IF_ERROR(ValidateModelOptions(options.model));
  HADAL_ASSIGN_OR_RETURN(run.vocabularies, LoadVocabularies(*run.train));
  run.attachments = Attach(*run.vocabularies, run.train->manifest().shares_vocabulary());
  if (!arguments.costs.empty()) {  // they must be this model's; the report needs them
    HADAL_ASSIGN_OR_RETURN(const LoadedCosts costs, LoadCosts(arguments.costs));
    HADAL_RETURN_IF_ERROR(costs.For(options.model).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRunDirectory(const std::string& directory) {
  const bool has_run = PathExists(CheckpointsDirectory(directory));  // which an older version began there
  if (!IsCheckpoint(directory) || has_run) return CheckPlace(directory);
  return InvalidArgumentError("--run-dir ", directory, " is a checkpoint, which nothing may change; to start from its ",
                              "weights, give --init-from ", directory, " and another --run-dir");
}

absl::Status TrainingSinks::OpenLog() {
  HADAL_ASSIGN_OR_RETURN(log_, RankLog::Open(JoinPath(run_directory_, kLogsName), identity_.rank));
  log_->Say(StartLines(identity_, environ));
  log_->Say(std::exchange(told_, ""));
  return absl::OkStatus();
}

absl::Status TrainingSinks::Open(const GridShape& grid, const std::string& config_text, int64_t first_step,
                                 const std::string& attempt) {
  identity_.stage = grid.StageOf(identity_.rank);
  identity_.stages = grid.stages;
  identity_.replica = grid.ReplicaOf(identity_.rank);
  identity_.replicas = grid.replicas;
  identity_.attempt = attempt;
  HADAL_RETURN_IF_ERROR(OpenLog());
  if (identity_.rank != 0) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(ReplaceFile(JoinPath(run_directory_, kResolvedConfigName), config_text, attempt));
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<MetricsJsonl> jsonl,
                         MetricsJsonl::Open({.path = JoinPath(run_directory_, kMetricsName),
                                             .first_step = first_step,
                                             .attempt = attempt,
                                             .may_write = [&] { return CheckOwner(run_directory_, attempt); },
                                             .warn = [this](const std::string& text) { Warn(text); }}));
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<TensorBoard> board,
                         TensorBoard::Open({.directory = JoinPath(run_directory_, kTensorBoardName),
                                            .first_step = first_step,
                                            .attempt = attempt,
                                            .config = config_text,
                                            .may_write = [&] { return CheckOwner(run_directory_, attempt); }}));
  progress_log_ = std::make_unique<RankLogStream>(*log_);
  fan_out_.Add(MakeJobReport());
  fan_out_.Add(std::move(jsonl));
  fan_out_.Add(std::move(board));
  fan_out_.Add(std::make_unique<Progress>(std::cout, Progress::Options{.style = DetectTerminal(STDOUT_FILENO)}));
  fan_out_.Add(std::make_unique<Progress>(*progress_log_, Progress::Options{}));
  return absl::OkStatus();
}

void TrainingSinks::Tell(const std::string& text) {
  std::cerr << absl::StrCat(text, "\n") << std::flush;
  if (log_ == nullptr) return absl::StrAppend(&told_, text, "\n");
  log_->Say(text);
}

void TrainingSinks::Warn(const std::string& text) {
  if (identity_.rank == 0) Tell(absl::StrCat("warning: ", text));
}

absl::StatusOr<TraceRequest> TrainingSinks::MakeTraceRequest(const std::string& steps, const StopOptions& stop) {
  if (steps.empty()) return TraceRequest();
  HADAL_ASSIGN_OR_RETURN(const TraceSteps range, ParseTraceSteps(steps));
  if (stop.steps > 0 && range.last > stop.steps) {
    return InvalidArgumentError("--trace ", steps, " goes beyond the run: its last step is ", stop.steps,
                                " (stop.steps)");
  }
  return TraceRequest{.first_step = range.first, .last_step = range.last, .write = [this](const RunTrace& trace) {
                        const absl::StatusOr<std::string> path = WriteTraceJson(trace, run_directory_);
                        sink().OnText(trace.last_step, path.ok() ? TextKind::kNotice : TextKind::kWarning,
                                      path.ok() ? absl::StrCat("trace written: ", *path)
                                                : absl::StrCat("no trace: ", path.status().message()));
                      }};
}

absl::Status TrainingSinks::Finish(std::string_view reason) {
  fan_out_.OnFinish(reason);
  absl::Status status = fan_out_.Flush();
  status.Update(log_->Flush());
  return status;
}

void TrainingSinks::LogEnd(int exit_code, const absl::Status& end) {
  const bool may_open = !absl::IsAborted(end) && (exit_code != kExitUsage || PathExists(run_directory_)) &&
                        CheckRunDirectory(run_directory_).ok();
  if (log_ == nullptr && may_open) OpenLog().IgnoreError();  // the log is optional: the user sees the message
  ReportEnd(exit_code);
  if (log_ != nullptr) log_->Say(absl::StrCat("end: exit code ", exit_code, end.ok() ? "" : ": ", end.message()));
}

bool TrainArguments::Resets(const std::string& what) const {
  return std::find(reset.begin(), reset.end(), what) != reset.end();
}

std::string TrainArguments::StartRequest() const {
  return absl::StrCat(resume, Resets("best") ? " --reset best" : "", Resets("data") ? " --reset data" : "");
}

absl::StatusOr<PreparedRun> PrepareRun(const TrainArguments& arguments, absl::StatusOr<config::RunConfig> config,
                                       const CorpusShare& share) {
  PreparedRun run;
  HADAL_ASSIGN_OR_RETURN(run.config, std::move(config));
  HADAL_RETURN_IF_ERROR(Explained(FollowConfig(arguments, share, run), arguments));
  return run;
}

absl::Status Explained(const absl::Status& error, const TrainArguments& arguments) {
  return WithOrigins(error, arguments.config.files, arguments.config.overrides);
}

}  // namespace hadal
