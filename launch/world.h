// World gives a process its rank, its communicator and its CPU threads.
//
// Under mpirun or srun the communicator is MPI's. A process without a launcher is the only rank and starts no MPI.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/comm/mpi_environment.h"
#include "runtime/stream.h"

namespace hadal {

class World {
 public:
  // `threads`: CPU threads per rank; 0: its share of the CPUs it may use. Blocking: all ranks of the job must call it;
  // a process that has waited for them for `patience` exits with kExitHang (start_deadline.h).
  // Errors: those of CheckTasks (task_launcher.h), with a message on only one of the processes; those of MPI_Init.
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
  std::unique_ptr<MpiCommunicator> mpi_communicator_;
  std::unique_ptr<InProcessWorld> alone_;
  Communicator* communicator_ = nullptr;
  Stream stream_;
  int ranks_on_host_ = 1, local_rank_ = 0;
  std::string warning_;
};

// Prints to stderr why World::Start failed; prints nothing if the status has no message. Returns the exit code.
int ReportNoWorld(const std::string& command, const absl::Status& status);

}  // namespace hadal
