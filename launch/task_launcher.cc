#include "launch/task_launcher.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

std::optional<int> Integer(const Environment& environment, const char* name) {
  const char* text = environment(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? std::optional<int>(value) : std::nullopt;
}

}  // namespace

bool StartedForMpi(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (environment(name) != nullptr) return true;
  }
  return false;
}

std::optional<StartedTask> TaskOfStep(const Environment& environment) {
  // Daemons of Open MPI and of Hydra (MPICH, Intel MPI) are tasks of a step, too; the ranks that they start are not.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"}) {
    if (environment(name) != nullptr) return std::nullopt;
  }
  const std::optional<int> tasks = Integer(environment, "SLURM_STEP_NUM_TASKS");
  const std::optional<int> task = Integer(environment, "SLURM_PROCID");
  if (!tasks || !task) return std::nullopt;
  return StartedTask{.task = *task, .tasks = *tasks};
}

bool IsFirstTask(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const std::optional<int> rank = Integer(environment, name); rank) return *rank == 0;
  }
  const std::optional<StartedTask> step = TaskOfStep(environment);
  return !step || step->task == 0;
}

std::optional<StartedTask> TaskOfTorchrun(const Environment& environment) {
  if (environment("TORCHELASTIC_RUN_ID") == nullptr) return std::nullopt;
  const std::optional<int> tasks = Integer(environment, "WORLD_SIZE");
  const std::optional<int> task = Integer(environment, "RANK");
  if (!tasks || !task) return std::nullopt;
  return StartedTask{.task = *task, .tasks = *tasks};
}

absl::Status CheckTasks(const Environment& environment, int ranks) {
  const std::optional<StartedTask> slurm = TaskOfStep(environment);
  const std::optional<StartedTask> started = slurm ? slurm : TaskOfTorchrun(environment);
  if (!started || started->tasks == ranks) return absl::OkStatus();
  if (started->task != 0) return absl::InvalidArgumentError("");
  const std::string found = absl::StrCat(" started ", started->tasks, " tasks, but ", ranks,
                                         ranks == 1 ? " rank" : " ranks", " found each other: ");
  if (!slurm) {
    return absl::InvalidArgumentError(absl::StrCat("torchrun", found,
                                                   "hadal's ranks find each other by MPI. Start it with mpirun -n ",
                                                   started->tasks, ", or with srun --mpi=pmix."));
  }
  return absl::InvalidArgumentError(absl::StrCat("srun", found,
                                                 "srun was not given an MPI type that this binary's "
                                                 "MPI supports. Start it with srun --mpi=pmix (srun "
                                                 "--mpi=list shows what your Slurm has; Debian's Open MPI has no "
                                                 "PMI-2), or with mpirun inside sbatch or salloc."));
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
