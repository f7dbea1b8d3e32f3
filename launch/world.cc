#include "launch/world.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "kernels/instruction_set.h"
#include "launch/exit_code.h"
#include "launch/start_deadline.h"
#include "launch/task_launcher.h"
#include "runtime/compute_thread.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"

namespace hadal {

namespace {

// Returns "rank 3", from the launcher's variables.
std::string RankByLauncher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = environment(name); rank != nullptr) return absl::StrCat("rank ", rank);
  }
  return "a rank";
}

// MPI and NCCL take files for each peer, and many systems let a process open 1024 unless it asks for more.
void AllowMoreOpenFiles() {
  constexpr rlim_t kEnough = 1 << 16;  // of a system that allows millions: closing all of them would take long
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<World>> World::Start(int threads, absl::Duration patience) {
  AllowMoreOpenFiles();
  std::unique_ptr<World> world(new World());
  RankPlacement placement;
  const Environment environment = [](const char* name) { return std::getenv(name); };
  if (StartedForMpi(environment)) {
    const StartDeadline deadline(RankByLauncher(environment), patience);
    HADAL_ASSIGN_OR_RETURN(world->mpi_, MpiEnvironment::Start(nullptr, nullptr));
    HADAL_ASSIGN_OR_RETURN(placement, world->mpi_->FindPlacement());
    world->ranks_on_host_ = placement.ranks_on_host;
    world->local_rank_ = placement.local_rank;
    HADAL_ASSIGN_OR_RETURN(world->mpi_communicator_, MpiCommunicator::Create(*world->mpi_));
    world->communicator_ = world->mpi_communicator_.get();
  } else {
    world->alone_ = std::make_unique<InProcessWorld>(1);
    world->communicator_ = &world->alone_->communicator(0);
  }
  HADAL_RETURN_IF_ERROR(CheckTasks(environment, world->size()));
  world->ChooseThreads(threads, ProcessCpus(placement.ranks_on_cpus, placement.ranks_on_host));
  for (const std::string& text : RankDisagreements(environment, world->rank(), world->local_rank_)) {
    absl::StrAppend(&world->warning_, world->warning_.empty() ? "" : "; ", text);
  }
  PrepareComputeThread();
  UseInstructionSets(AvailableInstructionSets());  // narrower only by the variable
  return world;
}

void World::ChooseThreads(int requested, int share) {
  const int threads = requested > 0 ? requested : share;
  stream_ = Stream::Cpu(threads);
  if (threads > share) {
    warning_ = absl::StrCat("rank ", rank(), " has ", threads, " threads, but its share is ", share,
                            share == 1 ? " CPU" : " CPUs", " (of its CPU mask, with ", ranks_on_host_,
                            ranks_on_host_ == 1 ? " rank" : " ranks",
                            " on this host, and of its container's quota): expect it to be slow. Set pipeline.threads "
                            "to 0 or ",
                            share, ", or allow it more CPUs (mpirun --bind-to none, srun --cpus-per-task).");
  }
}

int ReportNoWorld(const std::string& command, const absl::Status& status) {
  if (!status.message().empty())
    std::cerr << absl::StrCat("hadal ", command, ": ", PrintableMessage(std::string(status.message())), "\n")
              << std::flush;
  return ExitCodeOf(status);
}

}  // namespace hadal
