// The Communicator of ranks that are MPI processes, on one host or many. Built for Open MPI 4.1; uses only MPI 3.0.
//
// Uses a duplicate of MPI_COMM_WORLD that returns errors, so its messages cannot match those of other MPI users in this
// process. MPI buffers small messages (Open MPI: up to about 4 KiB on one host), so their sends complete early; larger
// sends complete after their receive is posted. MPI moves data only inside its own calls, so ranks must call Progress.
// Buffers must be in host memory: Debian's Open MPI cannot read device pointers.
// Errors: a lost connection usually ends the job inside MPI or mpirun before a call can return Unavailable.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

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

// MPI in this process: starts it once, ends it without hanging, and determines which ranks share a host and its CPUs.
//
// MPI_Finalize waits for every rank, forever if one of them is stuck or has already exited. The destructor therefore
// first enters a barrier with a deadline and ends the job if some rank does not arrive. A rank that has failed must not
// destroy this object but call Communicator::Abort, which ends all ranks at once. Without mpirun the job has one rank.
// Threads: the thread that called Start makes all calls (MPI_THREAD_FUNNELED).
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

class MpiCommunicator final : public Communicator {
 public:
  // Blocking: every rank of `environment` must call it, in the same order if there are several communicators. The
  // environment must outlive the communicator.
  static absl::StatusOr<std::unique_ptr<MpiCommunicator>> Create(const MpiEnvironment& environment);
  // REQUIRES: no transfer is in progress, or an error was returned.
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override;
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) override;
  void Progress() override;
  // Ends all ranks of the job; mpirun returns `exit_code` if it can. Does not return.
  void Abort(int exit_code) override;

 protected:
  void TakeBack() override;

 private:
  struct Outstanding {
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_send = false;
    int64_t bytes = 0;  // a send's length, a receive's capacity
  };

  MpiCommunicator(int rank, int size, MPI_Comm world, MPI_Comm nobody)
      : rank_(rank), size_(size), world_(world), nobody_(nobody) {}
  absl::StatusOr<CommRequest> Post(void* data, int64_t bytes, CommRequest request);
  absl::Status CheckOpen() const;
  absl::Status ErrorStatus(int mpi_error, const CommRequest& request, int64_t bytes) const;

  const int rank_;
  const int size_;
  MPI_Comm world_;                        // carries all messages
  MPI_Comm nobody_;                       // carries no message; Progress probes it to make MPI progress
  std::vector<Outstanding> outstanding_;  // by CommRequest::id
  std::vector<int64_t> free_ids_;
  bool closed_ = false;
};

}  // namespace hadal
