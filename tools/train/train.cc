// `hadal train BASE.textproto [MORE.textproto …] [--set a.b=c]… [--run-dir DIR] [--resume auto|never|PATH] [--init-from
// CHECKPOINT [--deepen [--deepen-rule R]] [--new-rows draw|mean]]`
//
// Trains a model. Each rank: reads config files and corpora (training_sinks.h) → compares them with all ranks, and
// plans model and pipeline (train_start.h) → creates the trainer (pipeline/trainer.h) → loads a checkpoint, if any
// (resume.h) → trains. Rank 0 writes metrics, TensorBoard events and the progress line (training_sinks.h).
#include "tools/commands.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launch/device_choice.h"
#include "launch/error_report.h"
#include "launch/exit_code.h"
#include "launch/signals.h"
#include "launch/watchdog.h"
#include "launch/world.h"
#include "pipeline/checkpoint/run_owner.h"
#include "pipeline/trainer.h"
#include "pipeline/validator.h"
#include "runtime/data/unicode_text.h"
#include "runtime/device_watch.h"
#include "runtime/status_macros.h"
#include "tools/build_info.h"
#include "tools/config/config_loading.h"
#include "tools/device_flags.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/placement_map.h"
#include "tools/report/summary.h"
#include "tools/train/resume.h"
#include "tools/train/train_start.h"
#include "tools/train/training_sinks.h"

namespace hadal {
namespace {

// Timeout for closing the device communicators.
constexpr absl::Duration kCloseTimeout = absl::Seconds(60);
// Timeout for the other ranks on a rank that could not read its config.
constexpr double kDefaultTimeoutSeconds = 600;
// Minimum timeout for connecting the ranks, even if wait_timeout_seconds is shorter: hosts may load the program one
// after another.
constexpr absl::Duration kShortestStartTimeout = absl::Minutes(1);

// The arguments that every step of a run uses on this rank.
struct RankOfRun {
  const TrainArguments& arguments;
  World& world;
  Collectives& collectives;
  RunDevice& device;
  TrainingSinks& sinks;
};

// Returns whether this rank was requested to stop, by a signal or by its time limit. Every rank keeps time, so that
// replicas stop translating together.
std::function<bool()> StopRequestOf(const PreparedRun& prepared) {
  return [limit = prepared.time_limit] { return StopSignalled() || limit.Reached(); };
}

// Creates the BLEU evaluator for validations; returns null if the config does not request one. Warns of sentences that
// it leaves out, and of references without spaces between words. `prepared` and `layout` must outlive the result.
std::unique_ptr<ValidationBleu> MakeValidationBleu(const PreparedRun& prepared, const RunLayout& layout,
                                                   TrainingSinks& sinks) {
  const TrainOptions& options = prepared.options.train;
  if (!layout.pipeline.decoder || !prepared.validation) return nullptr;
  auto bleu = std::make_unique<ValidationBleu>(
      *prepared.validation, *prepared.vocabularies, options.validation.bleu_sentences, layout.plan, layout.pipeline,
      absl::Seconds(options.pipeline.wait_timeout_seconds), options.validation.bleu_tokenizer, StopRequestOf(prepared));
  if (bleu->skipped() > 0) {
    sinks.Warn(absl::StrCat("BLEU at validations leaves out ", bleu->skipped(), " of ",
                            bleu->skipped() + bleu->sentences(), " sentences: their sources are empty or longer than ",
                            layout.pipeline.decode_capacity.longest_source - 1,
                            " tokens (batch.source_tokens, model.max_positions)"));
  }
  const bool splits_at_spaces = options.validation.bleu_tokenizer == BleuTokenizer::k13a;
  if (splits_at_spaces && IsUnspaced(bleu->references())) sinks.Warn(kUnspacedBleu);
  return bleu;
}

// Creates this rank's trainer, whose weights are not set yet. Moves the attachments out of `prepared`; the other
// arguments must outlive the trainer. `bleu`: null for no BLEU.
absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RankOfRun& rank, PreparedRun& prepared,
                                                     const AgreedRun& agreed, ValidationBleu* bleu) {
  const RunLayout& layout = agreed.layout;
  const TrainOptions& options = prepared.options.train;
  TrainingSinks& sinks = rank.sinks;
  TrainingSurroundings surroundings{.communicator = rank.world.communicator(),
                                    .device_communicator = rank.device.communicator.get(),
                                    .stream = layout.stream,
                                    .train = *prepared.train,
                                    .validation = prepared.validation ? &*prepared.validation : nullptr,
                                    .sink = sinks.sink(),
                                    .stop_requested = StopRequestOf(prepared)};
  if (bleu != nullptr) surroundings.validation_bleu = std::ref(*bleu);
  surroundings.hosts = agreed.hosts;
  HADAL_ASSIGN_OR_RETURN(surroundings.trace, AsCommonError(sinks.MakeTraceRequest(rank.arguments.trace, options.stop)));
  return Trainer::Create(options, layout.plan, layout.pipeline, surroundings,
                         {.run_directory = options.run_directory,
                          .retention = {options.checkpoint.keep_last, options.checkpoint.keep_every},
                          .config_text = prepared.config_text,
                          .attachments = std::move(prepared.attachments),
                          .inputs = prepared.train->manifest().inputs(),
                          .seed = options.seed,
                          .new_rows = rank.arguments.new_rows,
                          .warn = [&sinks](std::string_view text) { sinks.Warn(std::string(text)); },
                          .predecessor = agreed.predecessor});
}

// Creates the run directory and makes this attempt its owner. Rank 0 then stores the --resume request, for later
// attempts of this job.
absl::Status ClaimRun(const RankOfRun& rank, const AgreedRun& agreed, Trainer& trainer) {
  HADAL_RETURN_IF_ERROR(trainer.Claim());
  absl::Status noted;
  if (rank.world.rank() == 0) {
    noted = NoteResume(rank.arguments.run_directory, agreed.resume, trainer.progress().step,
                       [](const char* name) { return std::getenv(name); });
  }
  return rank.collectives.AllOk(noted, "noting --resume");
}

// Opens the files of the run directory. Rank 0 also stores the cost files.
absl::Status OpenRun(const RankOfRun& rank, const PreparedRun& prepared, const AgreedRun& agreed,
                     const Trainer& trainer) {
  const TrainArguments& arguments = rank.arguments;
  const absl::Status opened = rank.sinks.Open(agreed.layout.pipeline.grid, prepared.config_text,
                                              trainer.progress().step + 1, trainer.attempt());
  HADAL_RETURN_IF_ERROR(CauseOf(opened, arguments.run_directory, trainer.attempt()));
  return rank.world.rank() == 0 ? StoreCosts(arguments.costs, arguments.run_directory) : absl::OkStatus();
}

std::string ReasonText(StopReason reason) {
  switch (reason) {
    case StopReason::kSteps:
      return std::string(kAllStepsDone);
    case StopReason::kEpochs:
      return "all epochs done";
    case StopReason::kMinutes:
      return "time limit reached";
    case StopReason::kPatience:
      return "no improvement for stop.patience validations";
    case StopReason::kRequested:
      return std::string(kStoppedToResume);
  }
  return "";
}

// What to do about a run that had met its limit before it started, or "".
std::string DoneBefore(StopReason reason, int64_t step, const std::string& run_directory) {
  const char* field = nullptr;
  if (reason == StopReason::kSteps) field = "stop.steps";
  if (reason == StopReason::kEpochs) field = "stop.epochs";
  if (reason == StopReason::kPatience) field = "stop.patience";
  if (field == nullptr) return "";
  return absl::StrCat("nothing to train: ", run_directory, " has a checkpoint of step ", step, ", where ", field,
                      " ends the run; raise ", field, ", or start a new run with another --run-dir or --resume never");
}

// Writes the run's report.txt, on rank 0.
void ReportRun(const RankOfRun& rank) {
  if (rank.world.rank() != 0) return;
  const absl::Status written = WriteRunReport(rank.arguments.run_directory);
  if (!written.ok()) rank.sinks.Tell(absl::StrCat("warning: no report.txt: ", written.message()));
}

// Trains until a stop condition, with a watchdog for ranks that are stuck. Returns the exit code.
absl::StatusOr<int> Train(const RankOfRun& rank, absl::Duration wait_timeout, Trainer& trainer) {
  const Watchdog watchdog(rank.world.communicator(), trainer.engine().current_instruction(), wait_timeout,
                          [&sinks = rank.sinks](const std::string& line) { sinks.Tell(line); });
  const int64_t steps_before = trainer.progress().step;
  rank.device.current = &trainer.engine().current_instruction();
  const absl::Cleanup leave = [&] { rank.device.current = nullptr; };
  const absl::StatusOr<TrainingOutcome> run = trainer.Run();
  // Freeing what a timed-out transfer uses may wait for the device.
  if (absl::IsDeadlineExceeded(run.status()) && rank.device.nccl != nullptr) {
    rank.device.hung(std::string(run.status().message()));
  }
  HADAL_RETURN_IF_ERROR(run.status());
  const TrainingOutcome& outcome = *run;
  if (outcome.progress.step == steps_before) {
    const std::string hint = DoneBefore(outcome.reason, steps_before, rank.arguments.run_directory);
    if (!hint.empty()) rank.sinks.Warn(hint);
  }
  const absl::Status written = rank.collectives.AllOk(rank.sinks.Finish(ReasonText(outcome.reason)), "writing metrics");
  // A saved run succeeds even if some metrics could not be written: an error would keep launchers from resuming it.
  if (!written.ok() && !outcome.saved) return written;
  if (!written.ok()) rank.sinks.Warn(absl::StrCat("the run is saved, but not all that it wrote: ", written.message()));
  if (outcome.reason != StopReason::kRequested) ReportRun(rank);
  return outcome.reason == StopReason::kRequested ? kExitRequeue : kExitDone;
}

// Runs all steps of a training run; every rank executes them in this order. PrepareRun does not communicate. Between
// two collective calls, the control flow of the other steps depends only on gathered values or votes, so an error ends
// all ranks alike and no rank waits for one that has left.
absl::StatusOr<int> TrainInWorld(const TrainArguments& arguments, absl::StatusOr<config::RunConfig> config,
                                 World& world, RunDevice& device, TrainingSinks& sinks) {
  absl::StatusOr<PreparedRun> prepared =
      PrepareRun(arguments, std::move(config), {.process = world.local_rank(), .processes = world.ranks_on_host()});
  const absl::Duration wait_timeout =
      absl::Seconds(prepared.ok() ? prepared->options.train.pipeline.wait_timeout_seconds : kDefaultTimeoutSeconds);
  // The other ranks wait here while rank 0 waits for a sign of the directory's owner.
  Collectives collectives(world.communicator(), std::max(wait_timeout, 3 * kOwnerSilence));
  const RankOfRun rank{
      .arguments = arguments, .world = world, .collectives = collectives, .device = device, .sinks = sinks};
  HADAL_ASSIGN_OR_RETURN(const AgreedRun agreed, AgreeOnRun(arguments, prepared, world, collectives, device, sinks));
  const std::unique_ptr<ValidationBleu> bleu = MakeValidationBleu(*prepared, agreed.layout, sinks);
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, MakeTrainer(rank, *prepared, agreed, bleu.get()));
  const auto is_other = [&](const std::string& host) { return host != agreed.hosts[0]; };
  if (world.rank() == 0 && std::ranges::any_of(agreed.hosts, is_other)) {
    sinks.Tell(std::string(absl::StripSuffix(PlacementMap(agreed.layout.pipeline.grid, agreed.hosts), "\n")));
  }
  HADAL_RETURN_IF_ERROR(
      LoadInitialState(arguments, agreed.resume, agreed.applied_step, *prepared, world.rank(), sinks, *trainer));
  HADAL_RETURN_IF_ERROR(ClaimRun(rank, agreed, *trainer));
  HADAL_RETURN_IF_ERROR(collectives.AllOk(OpenRun(rank, *prepared, agreed, *trainer), "run directory"));
  return Train(rank, wait_timeout, *trainer);
}

// Ends this process, whose device does not finish `what`. `place`: null before the first step and after the last.
void EndHungRun(int rank, const CurrentInstruction* current, const std::string& what, TrainingSinks& sinks) {
  const std::string text =
      absl::StrCat(what, "; at ", current == nullptr ? "the start or end of the run" : current->Describe());
  EndHung(absl::StrCat("train [rank ", rank, "]"), text, [&] { sinks.LogEnd(kExitHang, DeadlineExceededError(text)); });
}

int RunTrain(const TrainArguments& arguments) {
  // The thread count comes from the config. An unreadable config is reported after the ranks are connected.
  absl::StatusOr<config::RunConfig> config = LoadConfig(arguments.config.files, arguments.config.overrides);
  const double wait_seconds = config.ok() ? config->pipeline().wait_timeout_seconds() : kDefaultTimeoutSeconds;
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(
      config.ok() ? config->pipeline().threads() : 1, std::max(kShortestStartTimeout, absl::Seconds(wait_seconds)));
  if (!world.ok()) return ReportNoWorld("train", world.status());
  if ((*world)->size() == 1) IgnoreClosedPipes();
  TrainingSinks sinks({.version = Version(),
                       .rank = (*world)->rank(),
                       .ranks = (*world)->size(),
                       .threads = (*world)->stream().threads()},
                      arguments.run_directory);
  RunDevice device;
  device.hung = [&](const std::string& what) { EndHungRun((*world)->rank(), device.current, what, sinks); };
  absl::StatusOr<int> code = WithdrawOnException(
      (*world)->communicator(), [&] { return TrainInWorld(arguments, std::move(config), **world, device, sinks); });
  const auto part = [&device] {
    if (device.communicator == nullptr) return absl::OkStatus();
    DeviceWatch watch({.timeout = 2 * kCloseTimeout, .hung = device.hung});
    const DeviceWatch::Wait wait(watch, "closing the connections of the devices");
    return device.communicator->Close(kCloseTimeout);
  };
  if (code.ok()) {
    if (const absl::Status parted = part(); !parted.ok()) code = parted;
  }
  if (code.ok()) {
    sinks.LogEnd(*code, absl::OkStatus());
    return *code;
  }
  const int exit_code = ExitCodeOf(code.status());
  sinks.LogEnd(exit_code, code.status());
  if (exit_code == kExitDiverged && (*world)->rank() == 0) WriteRunReport(arguments.run_directory).IgnoreError();
  const bool together = ReportError("train", code.status(), (*world)->communicator(), std::cerr);
  if ((!together || !part().ok()) && (*world)->size() > 1) (*world)->communicator().Abort(exit_code);
  return exit_code;
}

}  // namespace

Command AddTrainArguments(Command app, const std::shared_ptr<TrainArguments>& arguments) {
  Command command = app.AddCommand("train", "Train a model, alone or under mpirun/srun");
  AddConfigArguments(command, arguments->config);
  command.AddOption("--run-dir", arguments->run_directory, "Where metrics, logs and checkpoints go").ShowDefault();
  command
      .AddOption("--resume", arguments->resume,
                 "Checkpoint to resume from: auto (the newest good one of --run-dir), never (a new run), or a path; "
                 "restarts of the same job take the newest")
      .ShowDefault();
  const CommandOption init_from =
      command.AddOption("--init-from", arguments->init_from,
                        "Start a new run from the weights of this checkpoint, or of this run's newest");
  const CommandOption deepen =
      command
          .AddFlag("--deepen", arguments->deepen,
                   "With --init-from: it has fewer layers, which are repeated to this model's depth")
          .Needs(init_from);
  command
      .AddOption("--deepen-rule", arguments->deepen_rule,
                 "How a layer's copies start: split (each makes its part of the layer's step; near the checkpoint's "
                 "loss) or zero (all but the first change nothing at first; at its loss)")
      .OneOf({"split", "zero"})
      .ShowDefault()
      .Needs(deepen);
  command
      .AddChoice<NewRows>("--new-rows", arguments->new_rows,
                          "With --init-from: rows of tokens that its vocabulary lacks: drawn as in a new model, or the "
                          "mean of its rows (default: draw)",
                          {{"draw", NewRows::kDraw}, {"mean", NewRows::kMean}})
      .Needs(init_from);
  command.AddFlag("--accept-changes", arguments->accept_changes,
                  "Resume, or begin with --init-from, although settings have changed");
  command
      .AddOption("--reset", arguments->reset,
                 "When resuming: data: read the training data from their beginning (a changed corpus needs it); best: "
                 "reset the best validation and the patience; once per job, as --resume")
      .OneOf({"best", "data"})
      .OneValueEach();
  command.AddFlag("--take-over", arguments->take_over, "Take over the run directory of a running job, which then ends");
  AddDeviceFlags(command, arguments->device);
  AddCostFlags(command, "kept with the run, for its report", arguments->costs);
  command.AddOption(
      "--trace", arguments->trace,
      "Write a timeline of these steps (steps=100-102) of all ranks to RUN_DIR/trace, for ui.perfetto.dev");
  command.AddOption(
      "--stop-after", arguments->stop_after,
      "Save and exit 85 after so long (3h55m), counted from the job's start; Slurm's end time counts too");
  return command;
}

void AddTrainCommand(Command app, int& exit_code) {
  auto arguments = std::make_shared<TrainArguments>();
  AddTrainArguments(app, arguments).Runs([arguments, &exit_code] { exit_code = RunTrain(*arguments); });
}

}  // namespace hadal
