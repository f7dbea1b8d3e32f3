// `hadal translate`, `hadal sample` (tools/translate/translate.h), `hadal evaluate` (tools/evaluate/evaluate.h) and
// `hadal score` (tools/translate/score.h), run in this process's world.
#include "tools/commands.h"

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "launch/device_choice.h"
#include "launch/task_launcher.h"
#include "launch/world.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/checkpoint/shared_checkpoint.h"
#include "runtime/comm/collectives.h"
#include "runtime/status_macros.h"
#include "tools/device_flags.h"
#include "tools/evaluate/evaluate.h"
#include "tools/translate/score.h"
#include "tools/translate/translate.h"

namespace hadal {
namespace {

// Returns `path` if this rank is alone; else the checkpoint that rank 0 finds by it, since a run in progress may have a
// better one the next moment.
// Errors: rank 0's; InvalidArgument, on all ranks, if a rank's host has another checkpoint there.
absl::StatusOr<std::string> CheckpointFor(const std::string& path, World& world) {
  if (world.size() == 1) return path;
  Collectives collectives(world.communicator(), absl::Minutes(10));
  const auto found = [&]() -> absl::StatusOr<FoundCheckpoint> {
    HADAL_ASSIGN_OR_RETURN(const ModelCheckpoint model, ModelCheckpoint::Open(path));
    return Found(model.reader());
  };
  HADAL_ASSIGN_OR_RETURN(const SharedCheckpoint shared,
                         ShareCheckpoint(world.rank() == 0 ? found() : FoundCheckpoint(), world.rank(), collectives));
  HADAL_RETURN_IF_ERROR(collectives.AllOk(CompareWithOwn(shared, world.rank()), "opening the checkpoint"));
  return shared.directory;
}

// Runs work(directory) on all ranks, for the checkpoint that `path` means; again if a run in progress removes it before
// every rank has opened it.
absl::Status WithCheckpoint(const std::string& path, World& world,
                            const std::function<absl::Status(const std::string&)>& work) {
  for (int tries = 1;; ++tries) {
    const absl::StatusOr<std::string> checkpoint = CheckpointFor(path, world);
    absl::Status status = checkpoint.ok() ? work(*checkpoint) : checkpoint.status();
    if (!absl::IsNotFound(status) || world.size() == 1 || tries == kMostChoices) return status;
  }
}

// The GPU of `request` for a model in `checkpoint`, if it is requested and available; else the CPU. fp32: translations
// are the CPU's. An error of opening the checkpoint is left to the command.
absl::StatusOr<ChosenDevice> DeviceFor(const DeviceRequest& request, const std::string& checkpoint, World& world) {
  if (request.kind == "cpu") return ChosenDevice();
  const absl::StatusOr<ModelCheckpoint> model = ModelCheckpoint::Open(checkpoint);
  Collectives collectives(world.communicator(), absl::Minutes(10));
  HADAL_ASSIGN_OR_RETURN(const bool missing, collectives.AnyRank(!model.ok(), "opening the checkpoint"));
  if (missing) return ChosenDevice();
  HADAL_ASSIGN_OR_RETURN(
      ChosenDevice chosen,
      ChooseDevice(request, model->plan(), {.precision = TrainingPrecision::kFp32}, world, collectives));
  if (!chosen.notice.empty()) std::cerr << chosen.notice << std::endl;
  return chosen;
}

// Makes `command` run work(options, world, stream) for the checkpoint of its options on all ranks. `doing`: of the
// device's errors. Options: TranslateOptions or ScoreOptions.
template <typename Options, typename Work>
void RunsWithCheckpoint(Command command, const std::string& name, const char* doing, std::shared_ptr<Options> options,
                        int& exit_code, const Work& work) {
  auto device = std::make_shared<DeviceRequest>(DeviceRequest{.doing = doing});
  AddDeviceFlags(command, *device);
  command.Runs([name, options, device, work, &exit_code] {
    exit_code = RunInWorld(name, options->threads, [&](World& world) -> absl::Status {
      Collectives collectives(world.communicator(), absl::Minutes(10));
      HADAL_ASSIGN_OR_RETURN(const std::string agreed, UseCommonProgram(world, collectives));
      if (!agreed.empty()) std::cerr << agreed << "\n";
      return WithCheckpoint(options->checkpoint, world, [&](const std::string& checkpoint) -> absl::Status {
        Options chosen_options = *options;
        chosen_options.checkpoint = checkpoint;
        HADAL_ASSIGN_OR_RETURN(const ChosenDevice chosen, DeviceFor(*device, checkpoint, world));
        return work(chosen_options, world, chosen.StreamFor(world.stream()));
      });
    });
  });
}

absl::Status Translate(const TranslateOptions& options, World& world, const Stream& stream) {
  return RunTranslate(options, world.communicator(), stream,
                      {std::cin, std::cout, std::cerr, /*typed=*/isatty(STDIN_FILENO) == 1,
                       /*unreadable=*/StandardInputFault(std::getenv)});
}

}  // namespace

void AddTranslateCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("translate", "Translate text with a trained model, alone or under mpirun/srun");
  auto options = std::make_shared<TranslateOptions>();
  AddTranslateOptions(command, *options);
  RunsWithCheckpoint(command, "translate", "translating", options, exit_code, Translate);
}

void AddEvaluateCommand(Command app, int& exit_code) {
  Command command =
      app.AddCommand("evaluate", "Translate and score many test sets: a table of directions with BLEU and chrF++");
  auto options = std::make_shared<EvaluateOptions>();
  AddEvaluateOptions(command, *options);
  RunsWithCheckpoint(command, "evaluate", "translating", options, exit_code,
                     [](const EvaluateOptions& chosen, World& world, const Stream& stream) {
                       return RunEvaluate(chosen, world.communicator(), stream, {std::cin, std::cout, std::cerr});
                     });
}

void AddSampleCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("sample", "Write text with a trained language model: draw continuations of prompts");
  auto options = std::make_shared<TranslateOptions>();
  AddSampleOptions(command, *options);
  RunsWithCheckpoint(command, "sample", "sampling", options, exit_code, Translate);
}

void AddScoreCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("score", "Score given translations: log-probability and token count of each pair");
  auto options = std::make_shared<ScoreOptions>();
  AddScoreOptions(command, *options);
  RunsWithCheckpoint(command, "score", "scoring", options, exit_code,
                     [](const ScoreOptions& chosen, World& world, const Stream& stream) {
                       return RunScore(chosen, world.communicator(), stream, std::cout, std::cerr);
                     });
}

}  // namespace hadal
