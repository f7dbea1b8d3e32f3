#include "launch/task_launcher.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

std::optional<int> Integer(const Environment& environment, const char* name) {
  const char* text = environment(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? std::optional<int>(value) : std::nullopt;
}

// This process's index among those that its launcher started.
struct StartedTask {
  int task = 0;
  int tasks = 1;
};

std::optional<StartedTask> TaskOf(const Environment& environment, const char* rank, const char* size) {
  const std::optional<int> task = Integer(environment, rank), tasks = Integer(environment, size);
  if (!tasks || !task) return std::nullopt;
  return StartedTask{.task = *task, .tasks = *tasks};
}

// Each returns this process's place among the tasks of one launcher: a Slurm job step, torchrun, or mpirun (of Open
// MPI, MPICH or Intel MPI); nullopt if that launcher did not start this process.
std::optional<StartedTask> TaskOfStep(const Environment& environment) {
  // Daemons of Open MPI and of Hydra (MPICH, Intel MPI) are tasks of a step, too; the ranks that they start are not.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"}) {
    if (environment(name) != nullptr) return std::nullopt;
  }
  return TaskOf(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
}

std::optional<StartedTask> TaskOfTorchrun(const Environment& environment) {
  if (environment("TORCHELASTIC_RUN_ID") == nullptr) return std::nullopt;
  return TaskOf(environment, "RANK", "WORLD_SIZE");
}

std::optional<StartedTask> TaskOfMpirun(const Environment& environment) {
  const std::optional<StartedTask> open_mpi = TaskOf(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  return open_mpi ? open_mpi : TaskOf(environment, "PMI_RANK", "PMI_SIZE");
}

}  // namespace

bool StartedForMpi(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (environment(name) != nullptr) return true;
  }
  return false;
}

bool IsFirstTask(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const std::optional<int> rank = Integer(environment, name); rank) return *rank == 0;
  }
  const std::optional<StartedTask> step = TaskOfStep(environment);
  return !step || step->task == 0;
}

absl::Status CheckTasks(const Environment& environment, int ranks) {
  const std::optional<StartedTask> slurm = TaskOfStep(environment);  // srun sets PMI_RANK, too
  const std::optional<StartedTask> mpirun = slurm ? std::nullopt : TaskOfMpirun(environment);
  const std::optional<StartedTask> started = slurm ? slurm : mpirun ? mpirun : TaskOfTorchrun(environment);
  if (!started || started->tasks == ranks) return absl::OkStatus();
  if (started->task != 0) return InvalidArgumentError("");
  const std::string found = absl::StrCat(" started ", started->tasks, " tasks, but ", ranks,
                                         ranks == 1 ? " rank" : " ranks", " found each other: ");
  if (mpirun) {
    return InvalidArgumentError(
        "mpirun", found,
        "it belongs to another MPI than this binary (hadal --build-info; mpirun --version), as in an environment of "
        "conda or pip that has its own. Start it with the mpirun of the MPI it was built with.");
  }
  if (!slurm) {
    return InvalidArgumentError("torchrun", found, "hadal's ranks find each other by MPI. Start it with mpirun -n ",
                                started->tasks, ", or with srun --mpi=pmix.");
  }
  return InvalidArgumentError(
      "srun", found,
      "srun was not given an MPI type that this binary's MPI supports. Start it with srun --mpi=pmix (srun --mpi=list "
      "shows what your Slurm has; Debian's Open MPI has no PMI-2), or with mpirun inside sbatch or salloc.");
}

std::string StandardInputFault(const Environment& environment) {
  const char* const version = environment("OMPI_VERSION");
  if (version == nullptr || !absl::StartsWith(version, "5.0.")) return "";
  return absl::StrCat(
      "mpirun of Open MPI ", version,
      " does not pass the end of standard input on, so rank 0 would wait forever; name a file: -i FILE");
}

std::vector<std::string> RankDisagreements(const Environment& environment, int rank, int local_rank) {
  struct Variable {
    const char* name;
    bool local;
    bool of_step;  // set by Slurm for mpirun's daemons, too, whose ranks inherit it
  };
  constexpr Variable kVariables[] = {
      {"OMPI_COMM_WORLD_RANK", false, false},
      {"PMIX_RANK", false, false},
      {"PMI_RANK", false, false},
      {"SLURM_PROCID", false, true},
      {"OMPI_COMM_WORLD_LOCAL_RANK", true, false},
      {"MPI_LOCALRANKID", true, false},
      {"SLURM_LOCALID", true, true},
  };
  const bool in_step = TaskOfStep(environment).has_value();
  std::vector<std::string> disagreements;
  for (const Variable& variable : kVariables) {
    const std::optional<int> said = Integer(environment, variable.name);
    const int found = variable.local ? local_rank : rank;
    if (!said || *said == found || (variable.of_step && !in_step)) continue;
    disagreements.push_back(
        absl::StrCat(variable.name, " says ", variable.local ? "local rank " : "rank ", *said, ", MPI says ", found));
  }
  return disagreements;
}

}  // namespace hadal
