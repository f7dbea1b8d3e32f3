// MPI in this process: starts it once, ends it without hanging, and finds out which ranks share a host.
//
// MPI_Finalize waits for every rank. If one of them is stuck or has already exited, it waits for ever, and so does the
// job. So the destructor first meets the other ranks in a barrier with a deadline, and ends the job if they do not
// come. A rank that has failed must not destroy this object: it calls Communicator::Abort, which ends all ranks at
// once. Without mpirun this is a world of one rank.
// Threads: the thread that called Start makes all calls (MPI_THREAD_FUNNELED).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hadal {

// Which ranks share a host; decides the threads per rank and the device of each rank.
struct RankPlacement {
  int local_rank = 0;     // this rank's number among the ranks of its host, in rank order
  int ranks_on_host = 1;  // how many ranks share this host's memory
};

class MpiEnvironment {
 public:
  // Starts MPI; may take options meant for MPI out of the arguments. Blocking: all ranks of the job call it.
  // Errors: FailedPrecondition when MPI was started before or offers no threads at all; Internal.
  // `farewell_timeout` is how long the destructor waits for the other ranks.
  static absl::StatusOr<std::unique_ptr<MpiEnvironment>> Start(int* argc, char*** argv,
                                                               absl::Duration farewell_timeout = absl::Seconds(60));
  // Ends MPI; if some rank does not come in time, ends the job with exit code 6 (peer lost). REQUIRES: every
  // MpiCommunicator is gone.
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Asks all ranks. Blocking without a deadline, like Start: only for the beginning of a run. Errors: Internal.
  absl::StatusOr<RankPlacement> FindPlacement() const;

 private:
  MpiEnvironment(int rank, int size, absl::Duration farewell_timeout)
      : rank_(rank), size_(size), farewell_timeout_(farewell_timeout) {}
  bool AllRanksCameToFarewell() const;

  const int rank_;
  const int size_;
  const absl::Duration farewell_timeout_;
};

}  // namespace hadal
