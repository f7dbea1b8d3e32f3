#include "launch/world.h"

#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launch/error_report.h"
#include "launch/exit_code.h"
#include "launch/task_launcher.h"
#include "runtime/check.h"
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

// MPI and NCCL take files for each peer, and many systems limit a process to 1024 by default.
void AllowMoreOpenFiles() {
  constexpr rlim_t kEnough = 1 << 16;  // of a system that allows millions: closing all of them would take long
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

RankFacts FactsOf(const World& world) {
  RankFacts facts = GatherFacts(world.rank(), world.stream().threads());
  facts.local_rank = world.local_rank();
  facts.ranks_on_host = world.ranks_on_host();
  facts.instruction_sets = AvailableInstructionSets();
  return facts;
}

absl::StatusOr<CommonProgram> CompareRanks(std::span<const RankFacts> ranks) {
  HADAL_CHECK(!ranks.empty());
  const RankFacts& first = ranks[0];
  CommonProgram common{.instruction_sets = first.instruction_sets};
  std::vector<std::string> hosts;
  std::vector<int> others, narrow;
  for (const RankFacts& facts : ranks) {
    hosts.push_back(facts.host);
    if (facts.binary_crc32c != first.binary_crc32c) others.push_back(facts.rank);
    common.instruction_sets &= facts.instruction_sets;
  }
  if (!others.empty()) {
    return InvalidArgumentError(DescribeRanks(others, hosts), ": another hadal than rank 0's on ", first.host,
                                "; start every rank with the same file");
  }
  if (common.instruction_sets == 0) {
    return InternalError(
        "the ranks' CPUs have none of the kernels' instruction sets in common (x86-64: SSE4, of 2010, and later ones)");
  }
  if (HasFusedMultiplyAdd(common.instruction_sets)) {
    common.instruction_sets = ~InstructionSets{0};
    return common;
  }
  for (const RankFacts& facts : ranks) {
    if (facts.instruction_sets == common.instruction_sets) narrow.push_back(facts.rank);
  }
  if (narrow.size() == ranks.size()) return common;
  common.notice =
      absl::StrCat("all ranks compute with ", InstructionSetName(common.instruction_sets),
                   ", the widest instruction set that each of them has",
                   narrow.empty() ? "" : absl::StrCat(" (", DescribeRanks({narrow[0]}, hosts), " has none wider)"),
                   ": so every layout gives the same bits; nodes of one kind would be faster");
  return common;
}

absl::StatusOr<std::string> UseCommonProgram(const World& world, Collectives& collectives) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> gathered,
                         collectives.AllGather(FactsToJson(FactsOf(world)), "what ranks run on"));
  std::vector<RankFacts> ranks;
  for (const std::string& text : gathered) {
    HADAL_ASSIGN_OR_RETURN(ranks.emplace_back(), FactsFromJson(text));
  }
  HADAL_ASSIGN_OR_RETURN(const CommonProgram common, AsCommonError(CompareRanks(ranks)));
  UseInstructionSets(common.instruction_sets);
  return world.rank() == 0 ? common.notice : "";
}

StartDeadline::StartDeadline(const std::string& who, absl::Duration patience) {
  const auto watch = [who, patience](const std::stop_token& ended) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any end;
    end.wait_for(lock, ended, absl::ToChronoMilliseconds(patience), [] { return false; });
    if (ended.stop_requested()) return;
    std::fprintf(stderr,
                 "hadal [%s]: gave up after %s waiting for all ranks to start. One of them is stopped, hangs (in a "
                 "file server, in a network's driver), or its host cannot be reached; `ps -o pid,stat,wchan:30,args -C "
                 "hadal` on each host shows those with T (stopped) or D (waiting for a file or a device)\n",
                 who.c_str(), absl::FormatDuration(patience).c_str());
    std::fflush(stderr);
    std::_Exit(kExitHang);
  };
  try {
    thread_ = std::jthread(watch);
  } catch (const std::system_error&) {
    // MPI needs threads, too, and will report the error.
  }
}

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
    HADAL_ASSIGN_OR_RETURN(world->mpi_communicator_, world->mpi_->NewCommunicator());
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
    warning_ = absl::StrCat(
        "rank ", rank(), " has ", threads, " threads, but its share is ", share, share == 1 ? " CPU" : " CPUs",
        " (of its CPU mask, with ", ranks_on_host_, ranks_on_host_ == 1 ? " rank" : " ranks",
        " on this host, and of its container's quota): expect it to be slow. Set pipeline.threads to 0 or ", share,
        ", or allow it more CPUs (mpirun --bind-to none, srun --cpus-per-task).");
  }
}

int ReportNoWorld(const std::string& command, const absl::Status& status) {
  if (!status.message().empty())
    std::cerr << absl::StrCat("hadal ", command, ": ", PrintableMessage(std::string(status.message())), "\n")
              << std::flush;
  return ExitCodeOf(status);
}

int RunInWorld(const std::string& command, int threads, const std::function<absl::Status(World&)>& body) {
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(threads);
  if (!world.ok()) return ReportNoWorld(command, world.status());
  if (!(*world)->warning().empty()) std::cerr << "warning: " << (*world)->warning() << "\n";
  const absl::Status status = WithdrawOnException((*world)->communicator(), [&] { return body(**world); });
  if (status.ok()) return kExitDone;
  const bool together = ReportError(command, status, (*world)->communicator(), std::cerr);
  if (!together) (*world)->communicator().Abort(ExitCodeOf(status));
  return ExitCodeOf(status);
}

}  // namespace hadal
