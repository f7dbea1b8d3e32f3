#include "launch/train/train_start.h"

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launch/train/checkpoint_agreement.h"
#include "launch/train/resume_request.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/host_name.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/checkpoint_list.h"
#include "tools/checkpoint/checkpoint_vocabularies.h"
#include "tools/config/config_difference.h"
#include "tools/config/config_loading.h"

namespace hadal {
namespace {

// Refuses to continue a run whose settings have changed, unless the user accepts the difference.
absl::Status CheckResumable(const TrainArguments& arguments, const config::RunConfig& config,
                            const std::vector<CheckpointParameter>& model, const std::string& directory,
                            TrainingSinks& sinks) {
  const absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(directory);
  if (!reader.ok()) return AdviseAnotherCheckpoint(reader.status());
  config::RunConfig before;
  HADAL_RETURN_IF_ERROR(MergeConfigText(reader->manifest().config_text, directory, before));
  HADAL_ASSIGN_OR_RETURN(const std::string difference, DiffConfigs(before, config));
  if (difference.empty()) return absl::OkStatus();
  if (arguments.accept_changes) {
    sinks.Tell(absl::StrCat("resuming ", directory, " with changed settings:\n", absl::StripSuffix(difference, "\n")));
    return absl::OkStatus();
  }
  const absl::Status fits = CompareParameters(reader->manifest().parameters, model);
  const std::string way_on = fits.ok() ? "Give --accept-changes to resume all the same"
                                       : absl::StrCat("It cannot: ", fits.message(), ". Give the settings of before");
  return absl::InvalidArgumentError(absl::StrCat("this run would resume from ", directory, " with other settings:\n",
                                                 difference, way_on,
                                                 ", --resume never to start over, or another --run-dir."));
}

// Refuses a checkpoint whose parameters are not the model's.
absl::Status CheckModel(const std::string& directory, const std::vector<CheckpointParameter>& model) {
  const absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(directory);
  if (!reader.ok()) return AdviseAnotherCheckpoint(reader.status());
  const absl::Status fits = CompareParameters(reader->manifest().parameters, model);
  return fits.ok() ? fits : absl::InvalidArgumentError(absl::StrCat(directory, ": ", fits.message()));
}

// The directory that `look` finds on rank 0, on all ranks.  Errors: look's, on all ranks.
absl::StatusOr<std::string> AsRankZeroFinds(const std::function<absl::StatusOr<std::string>()>& look, int rank,
                                            Collectives& collectives, std::string_view looking_for,
                                            std::string_view directory_of) {
  const absl::StatusOr<std::string> found = rank == 0 ? look() : std::string();
  HADAL_RETURN_IF_ERROR(collectives.AllOk(found.status(), looking_for));
  std::string directory = *found;
  HADAL_RETURN_IF_ERROR(collectives.Broadcast(directory, 0, directory_of));
  return directory;
}

// Rank 0 compares a checkpoint's vocabularies with the corpus's, and its parameters with the model's.
// Errors: those of the comparisons, on all ranks.
absl::Status AgreeOnFit(const std::string& checkpoint, const PreparedRun& run,
                        const std::vector<CheckpointParameter>& model, int rank, Collectives& collectives) {
  HADAL_RETURN_IF_ERROR(collectives.AllOk(rank == 0 ? CheckVocabularies(checkpoint, *run.train) : absl::OkStatus(),
                                          "comparing vocabularies"));
  return collectives.AllOk(rank == 0 ? CheckModel(checkpoint, model) : absl::OkStatus(), "comparing parameters");
}

std::vector<CheckpointParameter> ModelOf(Trainer& trainer) {
  return DescribeParameters(trainer.engine().state().plan());
}

// Goes on from the run's newest checkpoint, which `found` was when rank 0 looked.
absl::Status ResumeNewest(const TrainArguments& arguments, const PreparedRun& run, const std::string& found, int rank,
                          Collectives& collectives, TrainingSinks& sinks, Trainer& trainer) {
  HADAL_RETURN_IF_ERROR(trainer.ResumeLatest().status());
  // Reading may have refused the one that was found, and gone on to an older one, of other settings.
  const std::string loaded = CheckpointDirectory(arguments.run_directory, trainer.progress().step);
  if (loaded != found) {
    const std::vector<CheckpointParameter> model = ModelOf(trainer);
    const absl::Status resumable =
        rank == 0 ? CheckResumable(arguments, run.config, model, loaded, sinks) : absl::OkStatus();
    HADAL_RETURN_IF_ERROR(collectives.AllOk(resumable, "comparing settings"));
    HADAL_RETURN_IF_ERROR(AgreeOnFit(loaded, run, model, rank, collectives));
  }
  return AgreeOnCheckpoint(loaded, HostName(), collectives);
}

// Loads what `arguments` ask for into `trainer`; where they ask for nothing it stays at step 0.
absl::Status Load(const TrainArguments& arguments, const PreparedRun& run, int rank, Collectives& collectives,
                  TrainingSinks& sinks, Trainer& trainer) {
  const std::vector<CheckpointParameter> model = ModelOf(trainer);
  const auto resume = [&] { return FindResume(arguments, run.config, model, sinks); };
  HADAL_ASSIGN_OR_RETURN(const std::string resumed,
                         AsRankZeroFinds(resume, rank, collectives, "looking for a checkpoint", "where to resume"));
  if (!resumed.empty()) HADAL_RETURN_IF_ERROR(AgreeOnFit(resumed, run, model, rank, collectives));
  if (!resumed.empty() && arguments.resume == "auto") {
    return ResumeNewest(arguments, run, resumed, rank, collectives, sinks, trainer);
  }
  if (!resumed.empty()) {
    HADAL_RETURN_IF_ERROR(AgreeOnCheckpoint(resumed, HostName(), collectives));
    return AdviseAnotherCheckpoint(trainer.Resume(resumed));
  }
  if (arguments.init_from.empty()) return absl::OkStatus();
  // A run directory stands for its newest checkpoint.
  const auto resolve = [&] { return ResolveCheckpoint(arguments.init_from); };
  HADAL_ASSIGN_OR_RETURN(const std::string given,
                         AsRankZeroFinds(resolve, rank, collectives, "looking for --init-from", "what to begin from"));
  HADAL_RETURN_IF_ERROR(AgreeOnFit(given, run, model, rank, collectives));
  HADAL_RETURN_IF_ERROR(AgreeOnCheckpoint(given, HostName(), collectives));
  return AdviseAnotherCheckpoint(trainer.InitializeFrom(given));
}

const char* FromEnvironment(const char* name) { return std::getenv(name); }

}  // namespace

absl::StatusOr<std::string> FindResume(const TrainArguments& arguments, const config::RunConfig& config,
                                       const std::vector<CheckpointParameter>& model, TrainingSinks& sinks) {
  if (arguments.resume == "never") return std::string();
  std::string directory = arguments.resume;
  if (directory != "auto" && !arguments.init_from.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume ", directory, " and --init-from ", arguments.init_from,
                     " both name a checkpoint to begin from; give --resume to go on with its moments and its place in "
                     "the corpus, or --init-from to take its weights alone"));
  }
  if (arguments.resume == "auto") {
    const absl::StatusOr<FoundCheckpoint> found = FindLatest(arguments.run_directory, {.need_moments = true});
    if (absl::IsNotFound(found.status())) return std::string();
    HADAL_RETURN_IF_ERROR(found.status());
    directory = found->checkpoint.directory;
  }
  HADAL_RETURN_IF_ERROR(CheckResumable(arguments, config, model, directory, sinks));
  return directory;
}

absl::Status BeginRun(const TrainArguments& arguments, const PreparedRun& run, int rank, Collectives& collectives,
                      TrainingSinks& sinks, Trainer& trainer) {
  const std::string& run_directory = arguments.run_directory;
  const auto look = [&] { return ResumeOfThisStart(run_directory, arguments.resume, FromEnvironment); };
  TrainArguments now = arguments;
  HADAL_ASSIGN_OR_RETURN(now.resume, AsRankZeroFinds(look, rank, collectives,
                                                     "looking for an earlier start of this job", "what to resume"));
  if (now.resume != arguments.resume && rank == 0) {
    sinks.Tell(absl::StrCat("an earlier start of this job has done --resume ", arguments.resume,
                            ": going on from the newest checkpoint"));
  }
  HADAL_RETURN_IF_ERROR(Load(now, run, rank, collectives, sinks, trainer));
  const int64_t step = trainer.progress().step;
  return collectives.AllOk(rank == 0 ? NoteResume(run_directory, now.resume, step, FromEnvironment) : absl::OkStatus(),
                           "noting --resume");
}

}  // namespace hadal
