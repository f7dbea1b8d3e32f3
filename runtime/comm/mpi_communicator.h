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

#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi_environment.h"

namespace hadal {

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
