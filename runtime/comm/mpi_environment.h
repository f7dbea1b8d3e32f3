// The life of MPI in this process: started once, ended without hanging, and where its ranks live.
//
// MPI_Finalize waits for every rank. When one of them is stuck or has left by another door, it waits for ever, and with
// it the job. So the destructor first meets the other ranks in a barrier with a deadline and ends the job when they do
// not come. A rank that has failed does not let this object die: it calls Communicator::Abort, which ends all ranks at
// once. Threads: all calls by the thread that called Start (MPI_THREAD_FUNNELED). Alone, without mpirun, it is a world
// of one rank.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hadal {

// Which ranks share a machine: what chooses threads per rank and devices.
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
  // Ends MPI, or the job with exit code 6 (peer lost) when some rank does not come in time. REQUIRES: every
  // MpiCommunicator is gone.
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Asks all ranks. Blocking without a deadline, as Start is: for the beginning of a run.  Errors: Internal.
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
