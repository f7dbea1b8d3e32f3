// A Communicator is what a rank knows of its peers: bounded, asynchronous, ordered point-to-point transfers.
//
// Semantics (one text, checked by the conformance suite for every transport):
//   · Send and Receive post and return at once. Nothing is copied: the transport uses the buffer until the request is
//     done.
//   · Transfers between the same two ranks with the same tag match in the order they were posted. A rank may send to
//     itself.
//   · A send may stay incomplete until its receive is posted (rendezvous); callers must not count on buffering.
//   · Progress happens inside Test, Wait and Progress. Stages call Progress between sublayers, so that transfers
//     overlap computation even if the transport has no progress thread.
//   · Every wait has a deadline. When it passes, the error names rank, peer, direction, tag and what the caller waits
//     for.
// Errors: DeadlineExceeded (a wait's deadline passed: exit code 5), Unavailable (a peer is gone: exit code 6),
// Internal. After an error every call but Abort fails with Unavailable. A Wait that fails first takes back this rank's
// posted transfers, so that the caller may free its buffers. A rank that fails for a reason of its own must take them
// back itself (Withdraw, WithdrawOnError); else a peer's message would be written to freed memory.
// Threads: one thread a rank makes all calls but CurrentWait. Blocking: only Wait, and the collectives built on it
// (collectives.h).
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

// A posted transfer. Test or wait for each request until it is done, exactly once; do not copy it.
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
  std::string description;   // "rank 3, receive from rank 2, tag 5, for activations of chunk 0, micro-batch 17"
  double since_seconds = 0;  // MonotonicSeconds()
};

class Communicator {
 public:
  static constexpr int kTagLimit = 32768;  // what every MPI promises (MPI_TAG_UB)
  static constexpr int kFirstCollectiveTag = 32000;
  static constexpr int64_t kLongestMessageBytes = std::numeric_limits<int>::max();  // over MPI, which counts in int

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Posts a send of data[0, bytes). REQUIRES: 0 ≤ peer < size(), 0 ≤ tag < kTagLimit, bytes ≥ 0. More than
  // kLongestMessageBytes may be refused with InvalidArgument; MPI does. Tags from kFirstCollectiveTag on are for
  // collectives.h.
  virtual absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) = 0;
  // Posts a receive of at most `capacity_bytes`. A longer message is an Internal error when it arrives
  // (mpi_communicator.h has the limits of that check). REQUIRES: as Send.
  virtual absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) = 0;
  // As Receive, into device memory that only the work in `queue` uses. The transfer waits for what is in `queue` by
  // now, not for the main order. On transports that move host memory: Receive.
  virtual absl::StatusOr<CommRequest> ReceiveBehind(DeviceQueues::Queue queue, void* data, int64_t capacity_bytes,
                                                    int peer, int tag) {
    return Receive(data, capacity_bytes, peer, tag);
  }

  // Announces that this rank will have up to `transfers` more transfers posted and not yet ended by Test or Wait. The
  // transport prepares for them now instead of in the middle of a step. Transfers that were not announced work as well.
  // Errors: ResourceExhausted.
  virtual absl::Status Reserve(int64_t /*transfers*/) { return absl::OkStatus(); }

  // Whether the transfer is done. If so, `request` becomes inactive, and for a receive *received_bytes (may be null) is
  // set.
  virtual absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) = 0;
  // Moves outstanding transfers along. Cheap: safe to call thousands of times a second.
  virtual void Progress() = 0;

  // Waits until the transfer is done or `deadline` passes. `what` (e.g. "activations of micro-batch 17, chunk 0") goes
  // into the error. Yields at first, then sleeps for short times, so that an idle rank does not use a core that another
  // rank needs.
  virtual absl::Status Wait(CommRequest& request, absl::Time deadline, std::string_view what,
                            int64_t* received_bytes = nullptr);

  // From now on every call that waits here also moves the transfers of `passenger` along, and fails if that does.
  // Needed by a transport that exchanges its own messages through this one (nccl_communicator.h) and must not stop
  // while its rank waits. Null: no passenger any more.
  void Carry(Communicator* passenger);

  // Takes back what this rank has posted, here and in the passenger. Afterwards all calls but Abort fail, and the waits
  // of its peers for it reach their deadlines. Call it when ending early, before the buffers are freed.
  // In-process: no transfer touches a buffer afterwards. MPI: unmatched receives are cancelled. A receive in the middle
  // of its message, or a send, cannot be cancelled, but no MPI call follows, so the caller should call Abort soon.
  // NCCL: aborts what is under way on the device.
  void Withdraw();

  // What this rank waits for, here or in the passenger; nullopt when it does not wait or has only just begun. Any
  // thread may call it.
  std::optional<WaitInProgress> CurrentWait() const;

  // Ends the whole job with `exit_code`; in-process: makes every rank's pending and later calls fail with Unavailable.
  virtual void Abort(int exit_code) = 0;

 protected:
  // Withdraw, for this transport alone. Calling it again does nothing.
  virtual void TakeBack() {}
  // As Progress, but also returns an error; called by the communicator that carries this one.
  virtual absl::Status MoveAlong() {
    Progress();
    return absl::OkStatus();
  }
  // What Wait does between two Tests, when it has `waited` so far and may wait `remaining` longer. Default: yields at
  // first, then sleeps. A transport whose peers can wake it blocks here instead.
  virtual void Pause(absl::Duration waited, absl::Duration remaining);

  // Aborts when the arguments of Send or Receive break their REQUIRES.
  void CheckTransfer(int64_t bytes, int peer, int tag) const;
  // "rank 3, receive from rank 2, tag 5": how every error of a transfer begins.
  std::string Describe(const CommRequest& request) const;
  // Sets what CurrentWait returns.
  void SetCurrentWait(std::optional<WaitInProgress> wait);

 private:
  mutable std::mutex wait_mutex_;  // guards current_wait_ and passenger_, which CurrentWait reads on another thread
  Communicator* passenger_ = nullptr;
  std::optional<WaitInProgress> current_wait_;
};

// Returns `result`, an absl::Status or StatusOr of work that has posted transfers. If it is an error, takes the
// transfers back first, because their buffers may be freed next.
template <typename Result>
Result WithdrawOnError(Result result, Communicator& communicator) {
  if (!result.ok()) communicator.Withdraw();
  return result;
}

}  // namespace hadal
