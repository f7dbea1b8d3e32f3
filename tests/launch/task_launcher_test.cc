#include "launch/task_launcher.h"

#include <functional>
#include <map>

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Environment Of(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(TaskLauncher, MpiIsStartedForMpirunAndForSrunWithPmix) {
  EXPECT_TRUE(StartedForMpi(Of({{"OMPI_COMM_WORLD_SIZE", "2"}})));
  EXPECT_TRUE(StartedForMpi(Of({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}})));
  EXPECT_FALSE(StartedForMpi(Of({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}})));
  EXPECT_FALSE(StartedForMpi(Of({})));
}

TEST(TaskLauncher, TheFirstTaskIsRankZeroOrHasNoLauncher) {
  EXPECT_TRUE(IsFirstTask(Of({})));
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    EXPECT_TRUE(IsFirstTask(Of({{name, "0"}}))) << name;
    EXPECT_FALSE(IsFirstTask(Of({{name, "1"}}))) << name;
  }
  EXPECT_TRUE(IsFirstTask(Of({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}})));
  EXPECT_FALSE(IsFirstTask(Of({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}})));
}

TEST(TaskLauncher, TasksThatDoNotFindEachOtherAreAnErrorSaidOnce) {
  const auto srun = [](const char* id) { return Of({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", id}}); };
  const auto torchrun = [](const char* rank) {
    return Of({{"TORCHELASTIC_RUN_ID", "none"}, {"WORLD_SIZE", "2"}, {"RANK", rank}});
  };
  const auto expect = [](const Environment& first, const Environment& other, const char* what, const char* remedy) {
    const absl::Status said = CheckTasks(first, 1), silent = CheckTasks(other, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(said) && absl::IsInvalidArgument(silent));
    EXPECT_THAT(std::string(said.message()), AllOf(HasSubstr(what), HasSubstr(remedy)));
    EXPECT_TRUE(silent.message().empty());
  };
  expect(srun("0"), srun("3"), "srun started 4 tasks, but 1 rank found each other", "--mpi=pmix");
  expect(torchrun("0"), torchrun("1"), "torchrun started 2 tasks, but 1 rank found each other", "mpirun -n 2");
  const auto open_mpi = [](const char* rank) {
    return Of({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", rank}, {"PMIX_RANK", rank}});
  };
  const auto hydra = [](const char* rank) {
    return Of({{"PMI_SIZE", "2"}, {"PMI_RANK", rank}, {"MPI_LOCALNRANKS", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  };
  for (const auto& mpirun : {std::function(open_mpi), std::function(hydra)}) {
    expect(mpirun("0"), mpirun("1"), "mpirun started 2 tasks, but 1 rank found each other", "another MPI");
    EXPECT_TRUE(CheckTasks(mpirun("1"), 2).ok());
  }
  const std::map<std::string, std::string> pmi2 = {
      {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}, {"PMI_SIZE", "4"}, {"PMI_RANK", "0"}};
  EXPECT_THAT(std::string(CheckTasks(Of(pmi2), 1).message()), HasSubstr("srun --mpi=pmix"));
  EXPECT_TRUE(CheckTasks(torchrun("1"), 2).ok());
  EXPECT_TRUE(CheckTasks(Of({{"WORLD_SIZE", "2"}, {"RANK", "1"}}), 1).ok());  // left over in a shell
}

TEST(TaskLauncher, StandardInputIsNotReadUnderOpenMpiFive) {
  EXPECT_THAT(StandardInputFault(Of({{"OMPI_VERSION", "5.0.11"}})), AllOf(HasSubstr("5.0.11"), HasSubstr("-i FILE")));
  EXPECT_EQ(StandardInputFault(Of({{"OMPI_VERSION", "5.1.0"}})), "");
  EXPECT_EQ(StandardInputFault(Of({{"OMPI_COMM_WORLD_SIZE", "2"}})), "");  // version 4
}

TEST(TaskLauncher, PlacesThatDisagreeAreNamed) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  const std::map<std::string, std::string> step = {
      {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "1"}, {"PMIX_RANK", "1"}};
  EXPECT_THAT(RankDisagreements(Of(step), 1, 1), IsEmpty());
  EXPECT_THAT(RankDisagreements(Of(step), 2, 0),
              ElementsAre("PMIX_RANK says rank 1, MPI says 2", "SLURM_PROCID says rank 1, MPI says 2",
                          "SLURM_LOCALID says local rank 1, MPI says 0"));
  // Under mpirun Slurm's variables are its daemon's.
  std::map<std::string, std::string> mpirun = {{"SLURM_STEP_NUM_TASKS", "2"},
                                               {"SLURM_PROCID", "0"},
                                               {"OMPI_COMM_WORLD_SIZE", "4"},
                                               {"OMPI_COMM_WORLD_RANK", "3"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  EXPECT_THAT(RankDisagreements(Of(mpirun), 3, 1), IsEmpty());
  EXPECT_THAT(RankDisagreements(Of(mpirun), 3, 0),
              ElementsAre("OMPI_COMM_WORLD_LOCAL_RANK says local rank 1, MPI says 0"));
  EXPECT_THAT(RankDisagreements(Of({}), 0, 0), IsEmpty());
}

TEST(TaskLauncher, WhatFindsItsPeersOrHasNoneIsRight) {
  const std::map<std::string, std::string> step = {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}};
  EXPECT_TRUE(CheckTasks(Of(step), 4).ok());
  EXPECT_TRUE(CheckTasks(Of({}), 1).ok());
  // mpirun under Slurm: its daemons are one task a node, whatever the ranks.
  std::map<std::string, std::string> under_mpirun = step;
  under_mpirun["OMPI_COMM_WORLD_SIZE"] = "16";
  EXPECT_TRUE(CheckTasks(Of(under_mpirun), 16).ok());
  std::map<std::string, std::string> under_hydra = step;
  under_hydra["MPI_LOCALNRANKS"] = "4";
  EXPECT_TRUE(CheckTasks(Of(under_hydra), 16).ok());
  // The batch script itself: tasks were asked for, but no step was started.
  EXPECT_TRUE(CheckTasks(Of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), 1).ok());
}

}  // namespace
}  // namespace hadal
