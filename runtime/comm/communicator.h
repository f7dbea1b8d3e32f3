// A Communicator is what a rank knows of its peers: bounded, asynchronous, ordered point-to-point transfers.
//
// Semantics (one text, checked by the conformance suite for every transport):
//   · Send and Receive post and return at once; nothing is copied: the buffer belongs to the transport until the request is done.
//   · Transfers between the same two ranks with the same tag match in the order they were posted. A rank may send to itself.
//   · A send may stay incomplete until its receive is posted (rendezvous); callers must not count on buffering.
//   · Progress happens inside Test, Wait and Progress. Stages call Progress between sublayers, so that transfers overlap
//     computation also where the transport has no progress thread.
//   · Every wait has a deadline. When it passes, the error names rank, peer, direction, tag and what the caller was waiting for.
// Errors: DeadlineExceeded (a wait's deadline passed: exit code 5), Unavailable (a peer is gone: exit code 6), Internal.
// After an error the communicator is only good for Abort: every other call fails with Unavailable. Wait takes this rank's posted
// transfers back before it returns an error, so that the caller may unwind with its buffers; one that ends with an error of its own does so
// itself (Withdraw, WithdrawOnError): else a peer's message would be written where the buffers were.
// Threads: one thread a rank makes all calls but CurrentWait. Blocking: only Wait and the collectives built on it (collectives.h).
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/device_queues.h"

namespace hadal {

// A posted transfer. Move-only in spirit: test or wait each request until it is done, exactly once.
struct CommRequest {
  static constexpr int64_t kNone = -1;
  int64_t id = kNone;  // the transport's own number
  bool is_send = false;
  int peer = -1;
  int tag = 0;

  bool active() const { return id != kNone; }
};

// A wait that has lasted longer than a few milliseconds.
struct WaitInProgress {
  std::string description;  // "rank 3, receive from rank 2, tag 5, for activations of chunk 0, micro-batch 17"
  absl::Time since;
};

class Communicator {
 public:
  static constexpr int kTagLimit = 32768;  // what every MPI promises (MPI_TAG_UB)
  static constexpr int kFirstCollectiveTag = 32000;
  static constexpr int64_t kLongestMessageBytes = std::numeric_limits<int>::max();  // over MPI, which counts in int

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Posts a send of data[0, bytes).  REQUIRES: 0 ≤ peer < size(), 0 ≤ tag < kTagLimit, bytes ≥ 0 (more than
  // kLongestMessageBytes may be refused with InvalidArgument; MPI does). Tags from kFirstCollectiveTag on belong to collectives.h.
  virtual absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) = 0;
  // Posts a receive of at most `capacity_bytes`. A longer message is an Internal error when it arrives (mpi_communicator.h has
  // the limits of that). REQUIRES: as Send.
  virtual absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) = 0;
  // As Receive, into memory of a device that only the work of `queue` uses: it waits for what is in that queue by now, and for nothing in the
  // main order. Where what is moved is the host's, Receive.
  virtual absl::StatusOr<CommRequest> ReceiveBehind(DeviceQueues::Queue queue, void* data, int64_t capacity_bytes,
                                                    int peer, int tag) {
    return Receive(data, capacity_bytes, peer, tag);
  }

  // Up to so many transfers more of this rank will be between Send or Receive and the Test or Wait that ends them: what the transport needs for them
  // is made now, and not in the middle of a step. Those that were not announced work too. Errors: ResourceExhausted.
  virtual absl::Status Reserve(int64_t /*transfers*/) { return absl::OkStatus(); }

  // Whether the transfer is done; then `request` becomes inactive and, for a receive, *received_bytes (may be null) is set.
  virtual absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) = 0;
  // Moves outstanding transfers along. Cheap: safe to call thousands of times a second.
  virtual void Progress() = 0;

  // Waits until the transfer is done or `deadline` passes; `what` (e.g. "activations of micro-batch 17, chunk 0") goes into the
  // error. Yields, then sleeps shortly, so that an idle rank does not burn a core that another rank needs.
  virtual absl::Status Wait(CommRequest& request, absl::Time deadline, std::string_view what,
                            int64_t* received_bytes = nullptr);

  // Whatever waits here moves the transfers of `passenger` along too, and fails with it: for a transport that talks through this one
  // (nccl_communicator.h) and must not stand still while its rank waits for something else. Null: nobody any more.
  void Carry(Communicator* passenger);

  // Takes back what this rank has posted, here and in the passenger; afterwards all calls but Abort fail, and so do its peers' waits for it, in the
  // end with their deadlines. For who ends early, before its buffers go.
  // In-process: no transfer touches a buffer afterwards. MPI: receives that nothing has matched are cancelled; one that is in
  // the middle of its arrival, or a send, cannot be, but MPI is called no more, so the caller should go on to Abort soon. NCCL: what is under way on
  // the device is aborted.
  void Withdraw();

  // What this rank is waiting for, here or in the passenger; nothing when it is not, or has only just begun. Any thread may call it.
  std::optional<WaitInProgress> CurrentWait() const;

  // Ends the whole job with `exit_code`; in-process: makes every rank's pending and later calls fail with Unavailable.
  virtual void Abort(int exit_code) = 0;

 protected:
  // Withdraw, for this transport alone. May be called again.
  virtual void TakeBack() {}
  // Progress, for whoever carries this: also says what has failed.
  virtual absl::Status MoveAlong() {
    Progress();
    return absl::OkStatus();
  }
  // What Wait does between two Tests when it has `waited` so far and may wait `remaining` longer. Default: yield at first,
  // then sleep. A transport that can be woken by its peers blocks here instead.
  virtual void Pause(absl::Duration waited, absl::Duration remaining);

  // Aborts when the arguments of Send or Receive break their REQUIRES.
  void CheckTransfer(int64_t bytes, int peer, int tag) const;
  // "rank 3, receive from rank 2, tag 5": how every error of a transfer begins.
  std::string Describe(const CommRequest& request) const;
  // What CurrentWait says.
  void SetCurrentWait(std::optional<WaitInProgress> wait);

 private:
  mutable std::mutex wait_mutex_;  // of what CurrentWait, on another thread, also reads
  Communicator* passenger_ = nullptr;
  std::optional<WaitInProgress> current_wait_;
};

// `result`, an absl::Status or StatusOr, of work that has posted transfers: where it is an error they are taken back, since their buffers may go next.
template <typename Result>
Result WithdrawOnError(Result result, Communicator& communicator) {
  if (!result.ok()) communicator.Withdraw();
  return result;
}

}  // namespace hadal
