#include "launch/train.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launch/build_info.h"
#include "launch/job/error_report.h"
#include "launch/job/exit_code.h"
#include "launch/job/signals.h"
#include "launch/job/watchdog.h"
#include "launch/job/withdrawal.h"
#include "launch/job/world.h"
#include "launch/train/corpus_agreement.h"
#include "launch/train/rank_agreement.h"
#include "launch/train/rank_device.h"
#include "launch/train/train_layout.h"
#include "launch/train/train_preparation.h"
#include "launch/train/train_start.h"
#include "launch/train/train_surroundings.h"
#include "launch/train/training_sinks.h"
#include "pipeline/trainer.h"
#include "pipeline/validation_bleu.h"
#include "runtime/host_name.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/placement_map.h"

namespace hadal {
namespace {

// How long the ranks' devices may take to part.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(60);
// How long a rank that could not read its config waits for the others.
constexpr double kDefaultTimeoutSeconds = 600;
// How long ranks may take to find each other, however short their later waits: hosts load the program one by one.
constexpr absl::Duration kShortestStartTimeout = absl::Minutes(1);

// What every step of a run has at hand.
struct RankOfRun {
  const TrainArguments& arguments;
  World& world;
  Collectives& collectives;
  RankDevice& device;
  TrainingSinks& sinks;
};

// Whether one program, with one set of settings and files, runs on every rank; what people are to know of it.
absl::StatusOr<std::string> Agree(const RankOfRun& rank, absl::StatusOr<PreparedRun>& prepared) {
  const TrainArguments& arguments = rank.arguments;
  Collectives& collectives = rank.collectives;
  HADAL_ASSIGN_OR_RETURN(std::string notice, AgreeWithRanks(rank.world, collectives));
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

// Connects the ranks' devices; tells what people are to know of the run by then. `agreed`: Agree's words.
absl::Status Connect(const RankOfRun& rank, const PreparedRun& prepared, const RunLayout& layout,
                     const std::string& agreed) {
  for (const std::string& warning : prepared.options.warnings) rank.sinks.Warn(warning);
  if (!rank.world.warning().empty()) rank.sinks.Tell(absl::StrCat("warning: ", rank.world.warning()));
  for (const std::string& notice : {agreed, rank.device.chosen.notice, rank.device.transport.notice}) {
    if (!notice.empty()) rank.sinks.Tell(notice);
  }
  const absl::Duration timeout = absl::Seconds(prepared.options.train.pipeline.wait_timeout_seconds);
  HADAL_ASSIGN_OR_RETURN(const std::string warning,
                         ConnectDevices(layout.plan, layout.pipeline, rank.world, timeout, rank.device));
  if (!warning.empty()) rank.sinks.Tell(absl::StrCat("warning: ", warning));
  return absl::OkStatus();
}

// The trainer of this rank, of new weights; takes the vocabularies. What it is given must outlive it. `bleu`: null for
// none.
absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RankOfRun& rank, PreparedRun& prepared,
                                                     const RunLayout& layout, ValidationBleu* bleu) {
  const TrainOptions& options = prepared.options.train;
  TrainingSinks& sinks = rank.sinks;
  TrainingSurroundings surroundings{
      .communicator = rank.world.communicator(),
      .device_communicator = rank.device.device_communicator.get(),
      .stream = layout.stream,
      .train = *prepared.train,
      .validation = prepared.validation ? &*prepared.validation : nullptr,
      .sink = sinks.sink(),
      .stop_requested = [limit = prepared.time_limit] { return StopSignalled() || limit.Reached(); }};
  if (bleu != nullptr) surroundings.validation_bleu = std::ref(*bleu);
  HADAL_ASSIGN_OR_RETURN(surroundings.trace, AsCommonError(MakeTraceRequest(rank.arguments, options.stop, sinks)));
  return Trainer::Create(options, layout.plan, layout.pipeline, surroundings,
                         {.run_directory = options.run_directory,
                          .retention = {options.checkpoint.keep_last, options.checkpoint.keep_every},
                          .config_text = prepared.config_text,
                          .attachments = std::move(prepared.vocabularies),
                          .warn = [&sinks](std::string_view text) { sinks.Warn(std::string(text)); }});
}

// Which host has which part, where there are several.
absl::Status TellPlacement(const RankOfRun& rank, const GridShape& grid) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, rank.collectives.AllGather(HostName(), "hosts"));
  const bool several =
      std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host != hosts[0]; });
  if (rank.world.rank() == 0 && several) {
    rank.sinks.Tell(std::string(absl::StripSuffix(PlacementMap(grid, hosts), "\n")));
  }
  return absl::OkStatus();
}

// Makes the run directory, with what the run was started from.
absl::Status OpenRun(const RankOfRun& rank, const PreparedRun& prepared, const GridShape& grid, int64_t first_step) {
  HADAL_RETURN_IF_ERROR(rank.sinks.Open(grid, prepared.config_text, first_step));
  if (rank.world.rank() != 0) return absl::OkStatus();
  return StoreCosts(rank.arguments.costs, rank.arguments.run_directory);
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

// Trains to the end, watched. Returns the exit code.
absl::StatusOr<int> Train(const RankOfRun& rank, absl::Duration wait_timeout, Trainer& trainer) {
  const Watchdog watchdog(rank.world.communicator(), trainer.engine().place(), wait_timeout,
                          [&sinks = rank.sinks](const std::string& line) { sinks.Tell(line); });
  HADAL_ASSIGN_OR_RETURN(const TrainingOutcome outcome, trainer.Run());
  const absl::Status written = rank.collectives.AllOk(rank.sinks.Finish(ReasonText(outcome.reason)), "writing metrics");
  // Lines that could not be written make no failure of a run that is saved: whoever goes by its exit code would not go
  // on with it.
  if (!written.ok() && !outcome.saved) return written;
  if (!written.ok()) rank.sinks.Warn(absl::StrCat("the run is saved, but not all that it wrote: ", written.message()));
  return outcome.reason == StopReason::kRequested ? kExitRequeue : kExitDone;
}

// The steps of a run, on every rank in this order. PrepareRun alone talks to no other rank; what the other steps do
// between two exchanges is a function of what has been agreed, or is voted on, so that all ranks fail alike and none
// waits for one that has left.
absl::StatusOr<int> TrainInWorld(const TrainArguments& arguments, World& world, RankDevice& device,
                                 TrainingSinks& sinks) {
  absl::StatusOr<PreparedRun> prepared_or =
      PrepareRun(arguments, {.process = world.local_rank(), .processes = world.ranks_on_host()});
  const absl::Duration wait_timeout = absl::Seconds(
      prepared_or.ok() ? prepared_or->options.train.pipeline.wait_timeout_seconds : kDefaultTimeoutSeconds);
  Collectives collectives(world.communicator(), wait_timeout);
  const RankOfRun rank{
      .arguments = arguments, .world = world, .collectives = collectives, .device = device, .sinks = sinks};
  HADAL_ASSIGN_OR_RETURN(const std::string agreed, AsCommonError(Agree(rank, prepared_or)));
  PreparedRun& prepared = *prepared_or;
  HADAL_ASSIGN_OR_RETURN(const RunLayout layout,
                         AsCommonError(LayOutRun(arguments, world, collectives, prepared.options.train, device)));
  HADAL_RETURN_IF_ERROR(Connect(rank, prepared, layout, agreed));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<ValidationBleu> bleu,
                         MakeValidationBleu(prepared, layout, collectives, sinks));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, MakeTrainer(rank, prepared, layout, bleu.get()));
  HADAL_RETURN_IF_ERROR(TellPlacement(rank, layout.pipeline.grid));
  HADAL_RETURN_IF_ERROR(BeginRun(arguments, prepared, world.rank(), collectives, sinks, *trainer));
  HADAL_RETURN_IF_ERROR(
      collectives.AllOk(OpenRun(rank, prepared, layout.pipeline.grid, trainer->progress().step), "run directory"));
  return Train(rank, wait_timeout, *trainer);
}

int RunTrain(const TrainArguments& arguments) {
  // Threads come from the config; a config that cannot be read is reported once the ranks know each other.
  const absl::StatusOr<config::RunConfig> config = LoadConfig(arguments.config.files, arguments.config.overrides);
  const double wait_seconds = config.ok() ? config->pipeline().wait_timeout_seconds() : kDefaultTimeoutSeconds;
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(
      config.ok() ? config->pipeline().threads() : 1, std::max(kShortestStartTimeout, absl::Seconds(wait_seconds)));
  if (!world.ok()) return ReportNoWorld("train", world.status());
  if ((*world)->size() == 1) IgnoreClosedPipes();
  RankDevice device;
  TrainingSinks sinks({.version = Version(),
                       .rank = (*world)->rank(),
                       .ranks = (*world)->size(),
                       .threads = (*world)->stream().threads()},
                      arguments.run_directory);
  absl::StatusOr<int> code =
      WithdrawOnException((*world)->communicator(), [&] { return TrainInWorld(arguments, **world, device, sinks); });
  const auto part = [&device] {
    return device.device_communicator == nullptr ? absl::OkStatus()
                                                 : device.device_communicator->Close(kFarewellTimeout);
  };
  if (code.ok()) {
    if (const absl::Status parted = part(); !parted.ok()) code = parted;
  }
  if (code.ok()) {
    sinks.LogEnd(*code, "");
    return *code;
  }
  const int exit_code = ExitCodeOf(code.status());
  sinks.LogEnd(exit_code, std::string(code.status().message()));
  const bool together = ReportError("train", code.status(), (*world)->communicator(), std::cerr);
  if ((!together || !part().ok()) && (*world)->size() > 1) (*world)->communicator().Abort(exit_code);
  return exit_code;
}

}  // namespace

void AddTrainCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("train", "Train a model, alone or under mpirun/srun");
  auto arguments = std::make_shared<TrainArguments>();
  AddConfigArguments(command, arguments->config);
  command.AddOption("--run-dir", arguments->run_directory, "Where metrics, logs and checkpoints go").ShowDefault();
  command
      .AddOption(
          "--resume", arguments->resume,
          "Where to go on: auto (newest good checkpoint of the run), never, or a checkpoint; a job that is started "
          "again does what is asked for once, and then goes on from the newest")
      .ShowDefault();
  command.AddOption("--init-from", arguments->init_from,
                    "Start a new run from the weights of this checkpoint, or of this run's newest");
  command.AddFlag("--accept-changes", arguments->accept_changes, "Resume although settings have changed");
  AddDeviceFlags(command, arguments->device);
  AddCostFlags(command, "kept with the run, for its report", arguments->costs);
  command.AddOption(
      "--trace", arguments->trace,
      "Write a timeline of these steps (steps=100-102) of all ranks to RUN_DIR/trace, for ui.perfetto.dev");
  command.AddOption(
      "--stop-after", arguments->stop_after,
      "Save and exit 85 after so long (3h55m), counted from the job's start; Slurm's end time counts too");
  command.Runs([arguments, &exit_code] { exit_code = RunTrain(*arguments); });
}

}  // namespace hadal
