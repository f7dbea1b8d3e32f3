#include "launch/train.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "launch/build_info.h"
#include "launch/checkpoint_agreement.h"
#include "launch/corpus_agreement.h"
#include "launch/error_report.h"
#include "launch/exit_code.h"
#include "launch/rank_agreement.h"
#include "launch/rank_device.h"
#include "launch/signals.h"
#include "launch/time_limit.h"
#include "launch/training_sinks.h"
#include "launch/watchdog.h"
#include "launch/withdrawal.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/decode/validation_bleu.h"
#include "pipeline/memory_fit.h"
#include "pipeline/trainer.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_vocabulary.h"
#include "runtime/data/unspaced_text.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"
#include "runtime/host_name.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/checkpoint_list.h"
#include "tools/config/config_arguments.h"
#include "tools/config/config_difference.h"
#include "tools/config/config_layers.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_origin.h"
#include "tools/config/resolved_config.h"
#include "tools/config/run_options.h"
#include "tools/metrics/trace_json.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/placement_map.h"

namespace hadal {
namespace {

// How long the ranks' devices may take to part.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(60);

struct TrainArguments {
  ConfigArguments config;
  std::string run_directory = "run";
  std::string resume = "auto";
  std::string init_from;
  bool accept_changes = false;
  std::string trace;  // "steps=100-102"
  std::string stop_after;
  DeviceRequest device;
  CostFiles costs;
};

// What every rank knows after reading its files; nothing here has talked to a peer.
struct Prepared {
  config::RunConfig config;
  std::string config_text;
  RunOptions options;
  std::optional<Corpus> train, validation;
  std::vector<Attachment> vocabularies;
  TimeLimit time_limit;
};

// The vocabularies as files that every checkpoint carries along.
absl::StatusOr<std::vector<Attachment>> AttachVocabularies(const Corpus& corpus) {
  HADAL_ASSIGN_OR_RETURN(const CorpusVocabularies vocabularies, LoadVocabularies(corpus));
  const auto attach = [](const Vocabulary& vocabulary, const std::string& stem) {
    return Attachment{stem + std::string(vocabulary.extension()), vocabulary.contents()};
  };
  if (corpus.manifest().shares_vocabulary()) {
    return std::vector<Attachment>{attach(vocabularies.target, "vocabulary")};
  }
  return std::vector<Attachment>{attach(vocabularies.source, "source.vocabulary"),
                                 attach(vocabularies.target, "target.vocabulary")};
}

// The corpus that a field names; the ranks of a host read it together: `share` is this one's.
absl::StatusOr<Corpus> OpenCorpus(const char* field, const std::string& prefix, const CorpusShare& share) {
  absl::StatusOr<Corpus> corpus = Corpus::Open(prefix, share);
  if (!absl::IsNotFound(corpus.status())) return corpus;
  return absl::NotFoundError(absl::StrCat(corpus.status().message(), ". ", field,
                                          " is a prefix of files, the one that `hadal prepare` prints at its end"));
}

// What follows from prepared.config.
absl::Status PrepareRun(const TrainArguments& arguments, const CorpusShare& share, Prepared& prepared) {
  if (arguments.run_directory.empty()) {
    return absl::InvalidArgumentError("--run-dir is empty (a variable that is not set?); name a directory");
  }
  HADAL_ASSIGN_OR_RETURN(prepared.options, MakeRunOptions(prepared.config));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> unheard, LayersWithoutEffect(arguments.config.files));
  prepared.options.warnings.insert(prepared.options.warnings.end(), unheard.begin(), unheard.end());
  TrainOptions& train = prepared.options.train;
  HADAL_RETURN_IF_ERROR(CheckTrainable(train));
  HADAL_ASSIGN_OR_RETURN(prepared.config_text, ResolvedConfigText(prepared.config));
  train.run_directory = arguments.run_directory;
  HADAL_ASSIGN_OR_RETURN(prepared.time_limit, TimeLimit::Make(arguments.stop_after));
  HADAL_ASSIGN_OR_RETURN(prepared.train, OpenCorpus("data.train", train.train_data, share));
  const CorpusManifest& manifest = prepared.train->manifest();
  if (!train.validation_data.empty()) {
    HADAL_ASSIGN_OR_RETURN(prepared.validation, OpenCorpus("data.validation", train.validation_data, share));
    const CorpusManifest& held_out = prepared.validation->manifest();
    if (held_out.source_vocabulary.crc32c != manifest.source_vocabulary.crc32c ||
        held_out.target_vocabulary.crc32c != manifest.target_vocabulary.crc32c) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.train = \"", train.train_data, "\" and data.validation = \"", train.validation_data,
                       "\" were prepared with different vocabularies. Prepare them together."));
    }
  }
  train.model.source_vocabulary = manifest.source_vocabulary.size;
  train.model.target_vocabulary = manifest.target_vocabulary.size;
  HADAL_RETURN_IF_ERROR(ValidateModelOptions(train.model));
  HADAL_ASSIGN_OR_RETURN(prepared.vocabularies, AttachVocabularies(*prepared.train));
  if (!arguments.costs.empty()) {  // they must be this model's; the report will want them
    HADAL_ASSIGN_OR_RETURN(const LoadedCosts costs, LoadCosts(arguments.costs));
    HADAL_RETURN_IF_ERROR(costs.For(train.model).status());
  }
  return absl::OkStatus();
}

// An error that names fields, told with where they were set.
absl::Status Explained(const absl::Status& error, const TrainArguments& arguments) {
  return WithOrigins(error, arguments.config.files, arguments.config.overrides);
}

absl::StatusOr<Prepared> Prepare(const TrainArguments& arguments, const CorpusShare& share) {
  Prepared prepared;
  HADAL_ASSIGN_OR_RETURN(prepared.config, LoadConfig(arguments.config.files, arguments.config.overrides));
  HADAL_RETURN_IF_ERROR(Explained(PrepareRun(arguments, share, prepared), arguments));
  return prepared;
}

// Rank 0's plan is everybody's.
absl::StatusOr<ModelPlan> SharePlan(const ModelOptions& options, World& world, Collectives& collectives) {
  std::string bytes;
  if (world.rank() == 0) bytes = ModelPlan::Make(options).Serialize();
  HADAL_RETURN_IF_ERROR(collectives.Broadcast(bytes, 0, "the model plan"));
  return ModelPlan::Parse(bytes);
}

// Cuts the model, within the memory that a rank may take.
absl::StatusOr<PipelinePlan> PlanPipeline(const ModelPlan& plan, const BatchOptions& batch, World& world,
                                          const ChosenDevice& chosen, Collectives& collectives,
                                          PipelineOptions& options) {
  HADAL_RETURN_IF_ERROR(LimitMemory(plan, batch, world, chosen.device.get(), collectives, options));
  HADAL_RETURN_IF_ERROR(FitMemory(plan, batch, world.size(), chosen.StreamFor(world.stream()), options));
  return MakePipelinePlan(plan, batch, options, world.size(), world.rank());
}

// Refuses to continue a run whose settings have changed, unless the user accepts the difference.
absl::Status CheckResumable(const TrainArguments& arguments, const Prepared& prepared, const std::string& directory,
                            TrainingSinks& sinks) {
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(directory));
  config::RunConfig before;
  HADAL_RETURN_IF_ERROR(MergeConfigText(reader.manifest().config_text, directory, before));
  HADAL_ASSIGN_OR_RETURN(const std::string difference, DiffConfigs(before, prepared.config));
  if (difference.empty()) return absl::OkStatus();
  if (arguments.accept_changes) {
    sinks.Tell(absl::StrCat("resuming ", directory, " with changed settings:\n", absl::StripSuffix(difference, "\n")));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "this run would resume from ", directory, " with other settings:\n", difference,
      "Give --accept-changes to resume all the same, --resume never to start over, or another --run-dir."));
}

// The checkpoint that --resume asks for; empty: start from step 0.
absl::StatusOr<std::string> FindResume(const TrainArguments& arguments, const Prepared& prepared,
                                       TrainingSinks& sinks) {
  if (arguments.resume == "never") return std::string();
  std::string directory = arguments.resume;
  if (arguments.resume == "auto") {
    const absl::StatusOr<FoundCheckpoint> found = FindLatest(arguments.run_directory, {.need_moments = true});
    if (absl::IsNotFound(found.status())) return std::string();
    HADAL_RETURN_IF_ERROR(found.status());
    directory = found->checkpoint.directory;
  }
  HADAL_RETURN_IF_ERROR(CheckResumable(arguments, prepared, directory, sinks));
  return directory;
}

// Agrees on where to start from and loads it.
absl::Status Begin(const TrainArguments& arguments, const Prepared& prepared, World& world, Collectives& collectives,
                   TrainingSinks& sinks, Trainer& trainer) {
  std::string directory;
  absl::Status status;
  if (world.rank() == 0) {
    const absl::StatusOr<std::string> found = FindResume(arguments, prepared, sinks);
    status = found.status();
    if (found.ok()) directory = *found;
  }
  HADAL_RETURN_IF_ERROR(collectives.AllOk(status, "looking for a checkpoint"));
  HADAL_RETURN_IF_ERROR(collectives.Broadcast(directory, 0, "where to resume"));
  if (!directory.empty() && arguments.resume == "auto") {
    HADAL_RETURN_IF_ERROR(trainer.ResumeLatest().status());
    // Reading may have refused the one that was found, and gone on to an older one, of other settings.
    const std::string loaded =
        JoinPath(CheckpointsDirectory(arguments.run_directory), CheckpointName(trainer.progress().step));
    const bool ask = world.rank() == 0 && loaded != directory;
    HADAL_RETURN_IF_ERROR(collectives.AllOk(ask ? CheckResumable(arguments, prepared, loaded, sinks) : absl::OkStatus(),
                                            "comparing settings"));
    return AgreeOnCheckpoint(loaded, HostName(), collectives);
  }
  if (directory.empty() && arguments.init_from.empty()) return absl::OkStatus();
  const bool begins = directory.empty();
  if (begins) {  // a run directory stands for its newest checkpoint, as rank 0 sees it
    if (world.rank() == 0) {
      absl::StatusOr<std::string> given = ResolveCheckpoint(arguments.init_from);
      status = given.status();
      if (given.ok()) directory = *std::move(given);
    }
    HADAL_RETURN_IF_ERROR(collectives.AllOk(status, "looking for --init-from"));
    HADAL_RETURN_IF_ERROR(collectives.Broadcast(directory, 0, "what to begin from"));
  }
  HADAL_RETURN_IF_ERROR(AgreeOnCheckpoint(directory, HostName(), collectives));
  return begins ? trainer.InitializeFrom(directory) : trainer.Resume(directory);
}

std::string ReasonText(StopReason reason) {
  switch (reason) {
    case StopReason::kSteps:
      return "all steps done";
    case StopReason::kEpochs:
      return "all epochs done";
    case StopReason::kMinutes:
      return "time limit reached";
    case StopReason::kPatience:
      return "no improvement for stop.patience validations";
    case StopReason::kRequested:
      return "stopped on a signal or a time limit; start the same command again to resume";
  }
  return "";
}

// The trainer's hook for BLEU at validations; null where the config asks for none. `plan` and `pipeline` must outlive it.
absl::StatusOr<std::unique_ptr<ValidationBleu>> MakeValidationBleu(const Prepared& prepared, const ModelPlan& plan,
                                                                   const PipelinePlan& pipeline) {
  const TrainOptions& options = prepared.options.train;
  if (!pipeline.decoder || !prepared.validation) return nullptr;
  HADAL_ASSIGN_OR_RETURN(CorpusVocabularies vocabularies, LoadVocabularies(*prepared.validation));
  return std::make_unique<ValidationBleu>(*prepared.validation, std::move(vocabularies),
                                          options.validation.bleu_sentences, plan, pipeline,
                                          absl::Seconds(options.pipeline.wait_timeout_seconds));
}

// The same, once every rank has made its own; tells what it leaves out, and of what BLEU says nothing.
absl::StatusOr<std::unique_ptr<ValidationBleu>> ShareValidationBleu(const Prepared& prepared, const ModelPlan& plan,
                                                                    const PipelinePlan& pipeline,
                                                                    Collectives& collectives, TrainingSinks& sinks) {
  absl::StatusOr<std::unique_ptr<ValidationBleu>> bleu = MakeValidationBleu(prepared, plan, pipeline);
  HADAL_RETURN_IF_ERROR(collectives.AllOk(bleu.status(), "preparing BLEU"));
  if (*bleu != nullptr && (*bleu)->skipped() > 0) {
    sinks.Tell(absl::StrCat(
        "warning: BLEU at validations leaves out ", (*bleu)->skipped(), " of ",
        (*bleu)->skipped() + (*bleu)->sentences(), " sentences: their sources are empty or longer than ",
        pipeline.decode_capacity.longest_source - 1, " tokens (batch.source_tokens, model.max_positions)"));
  }
  if (*bleu != nullptr && IsUnspaced((*bleu)->references())) sinks.Tell(absl::StrCat("warning: ", kUnspacedBleu));
  return bleu;
}

// The steps of --trace and where they go.
absl::StatusOr<TraceRequest> MakeTraceRequest(const TrainArguments& arguments, const StopOptions& stop,
                                              TrainingSinks& sinks) {
  if (arguments.trace.empty()) return TraceRequest();
  HADAL_ASSIGN_OR_RETURN(const TraceSteps steps, ParseTraceSteps(arguments.trace));
  if (stop.steps > 0 && steps.last >= stop.steps) {
    return absl::InvalidArgumentError(absl::StrCat("--trace ", arguments.trace,
                                                   " goes beyond the run: its last step is ", stop.steps - 1,
                                                   " (stop.steps = ", stop.steps, ", counted from 0)"));
  }
  return TraceRequest{
      .first_step = steps.first, .last_step = steps.last, .write = [&arguments, &sinks](const RunTrace& trace) {
        const absl::StatusOr<std::string> path = WriteTraceJson(trace, arguments.run_directory);
        sinks.sink().OnText(
            trace.last_step, path.ok() ? TextKind::kNotice : TextKind::kWarning,
            path.ok() ? absl::StrCat("trace written: ", *path) : absl::StrCat("no trace: ", path.status().message()));
      }};
}

// Makes the run directory, with what the run was started from.
absl::Status OpenRun(const TrainArguments& arguments, const Prepared& prepared, const World& world,
                     const PipelinePlan& pipeline, int64_t first_step, TrainingSinks& sinks) {
  HADAL_RETURN_IF_ERROR(sinks.Open(pipeline.grid, prepared.config_text, first_step));
  return world.rank() == 0 ? StoreCosts(arguments.costs, arguments.run_directory) : absl::OkStatus();
}

// Whether one program, with one set of settings and files, runs on every rank; what people are to know of it.
absl::StatusOr<std::string> Agree(const TrainArguments& arguments, absl::StatusOr<Prepared>& prepared, World& world,
                                  Collectives& collectives) {
  HADAL_ASSIGN_OR_RETURN(std::string notice, AgreeWithRanks(world, collectives));
  HADAL_RETURN_IF_ERROR(collectives.AllOk(prepared.status(), "reading configuration and data"));
  HADAL_RETURN_IF_ERROR(
      AgreeOnSettings(absl::StrCat("--run-dir ", arguments.run_directory, " --resume ", arguments.resume,
                                   arguments.init_from.empty() ? "" : " --init-from ", arguments.init_from,
                                   arguments.accept_changes ? " --accept-changes" : "",
                                   arguments.trace.empty() ? "" : " --trace ", arguments.trace),
                      prepared->config_text, collectives));
  const TrainOptions& options = prepared->options.train;
  HADAL_RETURN_IF_ERROR(AgreeOnCorpus("data.train", options.train_data, HostName(), collectives, *prepared->train));
  if (prepared->validation) {
    HADAL_RETURN_IF_ERROR(
        AgreeOnCorpus("data.validation", options.validation_data, HostName(), collectives, *prepared->validation));
  }
  return notice;
}

// Which host has which part, where there are several.
absl::Status TellPlacement(const World& world, Collectives& collectives, const GridShape& grid, TrainingSinks& sinks) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, collectives.AllGather(HostName(), "hosts"));
  const bool several =
      std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host != hosts[0]; });
  if (world.rank() == 0 && several) sinks.Tell(std::string(absl::StripSuffix(PlacementMap(grid, hosts), "\n")));
  return absl::OkStatus();
}

// The steps of a run, on every rank in this order. Collective are Agree, SharePlan, ChooseDevice, ChooseTransport, AgreeOnReluMasks, LimitMemory, ConnectDevices
// and all from ShareValidationBleu on but MakeTraceRequest and the watchdog; what lies between them is a function of what has been agreed, so
// that all ranks fail alike and none waits for one that has left.
absl::StatusOr<int> TrainInWorld(const TrainArguments& arguments, World& world, RankDevice& device,
                                 TrainingSinks& sinks) {
  absl::StatusOr<Prepared> prepared_or =
      Prepare(arguments, {.process = world.local_rank(), .processes = world.ranks_on_host()});
  const double timeout_seconds = prepared_or.ok() ? prepared_or->options.train.pipeline.wait_timeout_seconds : 600;
  Collectives collectives(world.communicator(), absl::Seconds(timeout_seconds));
  HADAL_ASSIGN_OR_RETURN(const std::string agreed, Agree(arguments, prepared_or, world, collectives));
  Prepared prepared = *std::move(prepared_or);
  TrainOptions& options = prepared.options.train;
  HADAL_ASSIGN_OR_RETURN(ModelPlan plan, SharePlan(options.model, world, collectives));
  HADAL_ASSIGN_OR_RETURN(device.chosen, ChooseDevice(arguments.device, plan, options, world, collectives));
  const ChosenDevice& chosen = device.chosen;
  plan.compute_storage = chosen.compute_storage;
  HADAL_ASSIGN_OR_RETURN(device.transport,
                         ChooseTransport(options.pipeline.transport, chosen.device ? chosen.device->Identity() : "",
                                         world.communicator(), collectives));
  options.pipeline.device_transfers = device.transport.nccl != nullptr;
  const Stream stream = chosen.StreamFor(world.stream());
  HADAL_ASSIGN_OR_RETURN(plan.relu_masks, AgreeOnReluMasks(plan, options.batch, options.pipeline, stream, collectives));
  const absl::StatusOr<PipelinePlan> planned =
      PlanPipeline(plan, options.batch, world, chosen, collectives, options.pipeline);
  HADAL_RETURN_IF_ERROR(Explained(planned.status(), arguments));
  const PipelinePlan& pipeline = *planned;

  for (const std::string& warning : prepared.options.warnings) sinks.Warn(warning);
  if (!world.warning().empty()) sinks.Tell(absl::StrCat("warning: ", world.warning()));
  for (const std::string& notice : {agreed, chosen.notice, device.transport.notice}) {
    if (!notice.empty()) sinks.Tell(notice);
  }
  HADAL_ASSIGN_OR_RETURN(const std::string more,
                         ConnectDevices(plan, pipeline, world, absl::Seconds(timeout_seconds), device));
  if (!more.empty()) sinks.Tell(absl::StrCat("warning: ", more));
  TrainingSurroundings surroundings{
      .communicator = world.communicator(),
      .devices = device.devices.get(),
      .stream = stream,
      .train = *prepared.train,
      .validation = prepared.validation ? &*prepared.validation : nullptr,
      .sink = sinks.sink(),
      .stop_requested = [limit = prepared.time_limit] { return StopSignalled() || limit.Reached(); }};
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<ValidationBleu> bleu,
                         ShareValidationBleu(prepared, plan, pipeline, collectives, sinks));
  if (bleu != nullptr) surroundings.validation_bleu = std::ref(*bleu);
  HADAL_ASSIGN_OR_RETURN(surroundings.trace, MakeTraceRequest(arguments, options.stop, sinks));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                         Trainer::Create(options, plan, pipeline, surroundings,
                                         {.run_directory = options.run_directory,
                                          .retention = {options.checkpoint.keep_last, options.checkpoint.keep_every},
                                          .config_text = prepared.config_text,
                                          .attachments = std::move(prepared.vocabularies),
                                          .warn = [&](std::string_view text) { sinks.Warn(std::string(text)); }}));
  HADAL_RETURN_IF_ERROR(TellPlacement(world, collectives, pipeline.grid, sinks));
  HADAL_RETURN_IF_ERROR(Begin(arguments, prepared, world, collectives, sinks, *trainer));
  HADAL_RETURN_IF_ERROR(collectives.AllOk(
      OpenRun(arguments, prepared, world, pipeline, trainer->progress().step, sinks), "run directory"));
  const Watchdog watchdog(world.communicator(), trainer->engine().place(),
                          absl::Seconds(options.pipeline.wait_timeout_seconds),
                          [&sinks](const std::string& line) { sinks.Tell(line); });
  HADAL_ASSIGN_OR_RETURN(const TrainingOutcome outcome, trainer->Run());
  HADAL_RETURN_IF_ERROR(collectives.AllOk(sinks.Finish(ReasonText(outcome.reason)), "writing metrics"));
  return outcome.reason == StopReason::kRequested ? kExitRequeue : kExitDone;
}

int RunTrain(const TrainArguments& arguments) {
  // Threads come from the config; a config that cannot be read is reported once the ranks know each other.
  const absl::StatusOr<config::RunConfig> config = LoadConfig(arguments.config.files, arguments.config.overrides);
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(config.ok() ? config->pipeline().threads() : 1);
  if (!world.ok()) return ReportNoWorld("train", world.status());
  if ((*world)->size() == 1) IgnoreClosedPipes();
  RankDevice device;
  TrainingSinks sinks({.version = Version(),
                       .rank = (*world)->rank(),
                       .ranks = (*world)->size(),
                       .threads = (*world)->stream().threads()},
                      arguments.run_directory);
  absl::StatusOr<int> code =
      CatchErrors((*world)->communicator(), [&] { return TrainInWorld(arguments, **world, device, sinks); });
  const auto part = [&device] {
    return device.devices == nullptr ? absl::OkStatus() : device.devices->Close(kFarewellTimeout);
  };
  if (code.ok()) {
    if (const absl::Status parted = part(); !parted.ok()) code = parted;
  }
  if (code.ok()) {
    sinks.LogEnd(*code, "");
    return *code;
  }
  const int exit_code = ExitCodeOf(code.status());
  const absl::Duration patience = PatienceWith(code.status(), sinks.is_open());
  sinks.LogEnd(exit_code, std::string(code.status().message()));
  const bool together = ReportError("train", code.status(), (*world)->communicator(), std::cerr, patience);
  if ((!together || !part().ok()) && (*world)->size() > 1) (*world)->communicator().Abort(exit_code);
  return exit_code;
}

}  // namespace

void AddTrainCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "Train a model, alone or under mpirun/srun");
  auto arguments = std::make_shared<TrainArguments>();
  AddConfigArguments(*command, arguments->config);
  command->add_option("--run-dir", arguments->run_directory, "Where metrics, logs and checkpoints go")
      ->capture_default_str();
  command->add_option("--resume", arguments->resume, "auto (newest good checkpoint of the run), never, or a checkpoint")
      ->capture_default_str();
  command->add_option("--init-from", arguments->init_from,
                      "Start a new run from the weights of this checkpoint, or of this run's newest");
  command->add_flag("--accept-changes", arguments->accept_changes, "Resume although settings have changed");
  AddDeviceFlags(*command, arguments->device);
  AddCostFlags(*command, "kept with the run, for its report", arguments->costs);
  command->add_option(
      "--trace", arguments->trace,
      "Write a timeline of these steps (steps=100-102) of all ranks to RUN_DIR/trace, for ui.perfetto.dev");
  command->add_option(
      "--stop-after", arguments->stop_after,
      "Save and exit 85 after so long (3h55m), counted from the job's start; Slurm's end time counts too");
  command->callback([arguments, &exit_code] { exit_code = RunTrain(*arguments); });
}

}  // namespace hadal
