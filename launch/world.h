// World gives a process its rank, its communicator and its CPU threads.
//
// Under mpirun or srun the communicator is MPI's. A process without a launcher is the only rank and opens no MPI.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/instruction_set.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/mpi_environment.h"
#include "runtime/rank_facts.h"
#include "runtime/stream.h"

namespace hadal {

// Ends this process if the ranks do not find each other in time.
//
// MPI_Init and the first calls after it wait for every rank without a deadline, forever if a rank is stopped, hangs on
// a file server, or its host is gone. Nothing can be saved then, and MPI cannot name the missing ranks; so a process
// that waits too long prints a message and exits, and its launcher ends the job.
// Threads: watches on its own thread, which makes no MPI call. Limitation: no deadline if that cannot be created.
class StartDeadline {
 public:
  // Prints a message to stderr and exits with kExitHang if the object still exists after `patience`. `who`: this
  // process, for the message.
  StartDeadline(std::string who, absl::Duration patience);
  ~StartDeadline();
  StartDeadline(const StartDeadline&) = delete;
  StartDeadline& operator=(const StartDeadline&) = delete;

 private:
  void Watch();

  const std::string who_;
  const absl::Duration patience_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;  // last: it uses the other members
};

class World {
 public:
  // `threads`: CPU threads per rank; 0: its share of the CPUs it may use. Blocking: all ranks of the job must call it;
  // a process that has waited for them for `patience` exits with kExitHang (StartDeadline).
  // Errors: those of CheckTasks (task_launcher.h), with a message on only one of the processes; MpiEnvironment's.
  static absl::StatusOr<std::unique_ptr<World>> Start(int threads, absl::Duration patience = absl::Minutes(10));

  Communicator& communicator() { return *communicator_; }
  const Stream& stream() const { return stream_; }
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int ranks_on_host() const { return ranks_on_host_; }
  // This rank's index among the ranks on its host.
  int local_rank() const { return local_rank_; }
  // A notice for the user about the placement ("2 threads, but 1 CPU …"), or empty.
  const std::string& warning() const { return warning_; }

 private:
  World() : stream_(Stream::Cpu(1)) {}
  // `share`: the CPUs for this rank (ProcessCpus).
  void ChooseThreads(int requested, int share);

  // In order of construction: later members use earlier ones.
  std::unique_ptr<MpiEnvironment> mpi_;
  std::unique_ptr<Communicator> mpi_communicator_;
  std::unique_ptr<InProcessWorld> alone_;
  Communicator* communicator_ = nullptr;
  Stream stream_;
  int ranks_on_host_ = 1, local_rank_ = 0;
  std::string warning_;
};

// Returns the facts of this rank (runtime/rank_facts.h).
RankFacts FactsOf(const World& world);

// Checks and selects the settings that all ranks of a job must share, so that results have the same bits in every
// layout.
//
//   program           must be the same file on all ranks, else an error: different programs exchange different messages
//   instruction set   each rank uses its own widest if every rank has fused multiply-adds: these give the same bits.
//                     Otherwise all use the widest that every rank has, with a message
struct CommonProgram {
  InstructionSets instruction_sets = 0;  // for UseInstructionSets on every rank
  std::string notice;                    // for the user; empty if no rank is limited
};

// Compares all ranks' facts, given in rank order. Pure.  REQUIRES: not empty.
// Errors: InvalidArgument, naming the ranks that run another program than rank 0; Internal if the ranks have no
// instruction set in common.
absl::StatusOr<CommonProgram> CompareRanks(std::span<const RankFacts> ranks);

// Gathers and compares the ranks' facts and limits this rank's instruction set to the result. For commands
// whose ranks exchange nothing else when they start. Returns the notice on rank 0, "" on the others.
// Blocking: all ranks call it, before any kernel runs.  Errors: those of CompareRanks, the same on all ranks; those of
// Communicator::Wait.
absl::StatusOr<std::string> UseCommonProgram(const World& world, Collectives& collectives);

// Prints to stderr why World::Start failed; prints nothing if the status has no message. Returns the exit code.
int ReportNoWorld(const std::string& command, const absl::Status& status);

// Starts the world and runs body(world) in it, as all of a command's ranks do together. Prints the world's warning, and
// an error of either. Returns the exit code.
int RunInWorld(const std::string& command, int threads, const std::function<absl::Status(World&)>& body);

}  // namespace hadal
