// MPI in this process: starts it once, ends it without hanging, and determines which ranks share a host and its CPUs.
//
// MPI_Finalize waits for every rank, forever if one of them is stuck or has already exited. The destructor therefore
// first enters a barrier with a deadline and ends the job if some rank does not arrive. A rank that has failed must not
// destroy this object but call Communicator::Abort, which ends all ranks at once. Without mpirun the job has one rank.
// Threads: the thread that called Start makes all calls (MPI_THREAD_FUNNELED).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hadal {

// Which ranks share this rank's host and CPUs. The caller chooses the rank's threads and device by it.
struct RankPlacement {
  int local_rank = 0;     // index among the ranks of its host, in rank order
  int ranks_on_host = 1;  // number of ranks on this host
  int ranks_on_cpus = 1;  // of these, the number that may run on a CPU on which this rank may run, itself included
};

class MpiEnvironment {
 public:
  // Starts MPI; may remove MPI's own options from the arguments. Blocking: all ranks of the job must call it.
  // `end_timeout`: how long the destructor waits for the other ranks.
  // Errors: FailedPrecondition if MPI was started before; Internal, also if MPI has no thread support.
  static absl::StatusOr<std::unique_ptr<MpiEnvironment>> Start(int* argc, char*** argv,
                                                               absl::Duration end_timeout = absl::Seconds(60));
  // Ends MPI. If a rank does not arrive in time, ends the job with exit code 6 (peer lost). REQUIRES: every
  // MpiCommunicator has been destroyed.
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Collective over all ranks. Blocking without a deadline, like Start: call it only at the beginning of a run. Errors:
  // Internal.
  absl::StatusOr<RankPlacement> FindPlacement() const;

 private:
  MpiEnvironment(int rank, int size, absl::Duration end_timeout)
      : rank_(rank), size_(size), end_timeout_(end_timeout) {}
  bool AllRanksReachedTheEnd() const;

  const int rank_;
  const int size_;
  const absl::Duration end_timeout_;
};

}  // namespace hadal
