// Asynchronous, ordered point-to-point transfers between ranks. Every wait has a deadline.
//
// Semantics (the conformance suite checks them for every transport):
//   · Send and Receive post a transfer and return at once. Nothing is copied: the transport uses the buffer until the
//     request is done.
//   · Transfers between the same two ranks with the same tag match in the order they were posted. A rank may send to
//     itself.
//   · A send may stay incomplete until its receive is posted (rendezvous); callers must not rely on buffering.
//   · Transfers progress only inside Test, Wait and Progress. Stages call Progress between sublayers, so that transfers
//     overlap computation even if the transport has no progress thread.
//   · When a wait's deadline passes, the error names rank, peer, direction, tag and the purpose of the wait.
// Errors: DeadlineExceeded (a deadline passed: exit code 5), Unavailable (a peer is gone: exit code 6), Internal. After
// an error every call but Abort fails with Unavailable. A Wait that fails withdraws this rank's posted transfers first,
// so that the caller may free their buffers. A rank that fails for another reason must withdraw its transfers itself
// (Withdraw, WithdrawOnError); otherwise a peer's message could be written to freed memory.
// Threads: one thread per rank makes all calls but CurrentWait. Blocking: only Wait, and the collectives built on it
// (collectives.h).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/device_queues.h"

namespace hadal {

// A posted transfer. The caller passes it to Test or Wait until one of them reports its end. It must not be copied.
struct CommRequest {
  static constexpr int64_t kNone = -1;
  static constexpr int kAllPeers = -2;
  int64_t id = kNone;  // assigned by the transport
  bool is_send = false;
  int peer = -1;  // kAllPeers: the request is a whole exchange
  int tag = 0;

  bool active() const { return id != kNone; }
};

// A wait that has lasted for more than a few milliseconds.
struct WaitInProgress {
  std::string description;   // "rank 3, receive from rank 2, tag 5, for activations of chunk 0, micro-batch 17"
  double since_seconds = 0;  // when it began, by MonotonicSeconds()
};

// The part of an exchange between this rank and `peer`: one message each way. 0 bytes: no message that way; its pointer
// may be null.
struct ExchangePart {
  int peer = -1;
  const void* send = nullptr;
  int64_t send_bytes = 0;
  void* receive = nullptr;
  int64_t receive_bytes = 0;  // must equal the peer's send_bytes
};

class Communicator {
 public:
  static constexpr int kTagLimit = 32768;  // the smallest MPI_TAG_UB that MPI allows
  static constexpr int kFirstCollectiveTag = 32000;
  static constexpr int64_t kLongestMessageBytes = std::numeric_limits<int>::max();  // limit of MPI, which counts in int

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Posts a send of data[0, bytes). REQUIRES: 0 ≤ peer < size(), 0 ≤ tag < kTagLimit, bytes ≥ 0. Errors:
  // InvalidArgument for more than kLongestMessageBytes on some transports (MPI). Tags from kFirstCollectiveTag on are
  // reserved for collectives.h.
  virtual absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) = 0;
  // Posts a receive of at most `capacity_bytes`. A longer message is an Internal error when it arrives (limits of that
  // check: mpi_communicator.cc). REQUIRES: as Send.
  virtual absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) = 0;
  // Posts this rank's messages of an exchange between all ranks, and appends its requests to `requests`, for Test or
  // Wait. Every rank must post the same exchanges in the same order, even those in which it has no message. Between
  // two ranks the messages match in the order of the parts. An exchange may stay incomplete until all ranks have
  // posted it.
  // `after`: on a transport that moves device memory, a recorded event after which the bytes may be accessed; it must
  // not be recorded again before the exchange is done. Transports that move host memory ignore it (null).
  // REQUIRES: as Send; the peers are other ranks.
  virtual absl::Status Exchange(std::span<const ExchangePart> parts, int tag, DeviceQueues::Event after,
                                std::vector<CommRequest>& requests);

  // Allocates what the transport needs for `transfers` more transfers in progress at once (posted and not yet ended by
  // Test or Wait), so that it allocates nothing in the middle of a step. Optional. Errors: ResourceExhausted.
  virtual absl::Status Reserve(int64_t /*transfers*/) { return absl::OkStatus(); }

  // Returns whether the transfer is done. If so, makes `request` inactive and, for a receive, sets *received_bytes (may
  // be null).
  virtual absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) = 0;
  // Advances transfers in progress. Cheap: may be called thousands of times a second.
  virtual void Progress() = 0;

  // Waits until the transfer is done or `deadline` passes. `what` (e.g. "activations of micro-batch 17, chunk 0")
  // appears in the error. Yields at first and then sleeps for short times, so that an idle rank does not occupy a core
  // that another rank needs. `received_bytes`: as in Test. `meanwhile`, if not null, is called again and again during
  // the wait, for work that must continue; it must neither block nor touch `request`. If it fails, so does the wait.
  virtual absl::Status Wait(CommRequest& request, absl::Time deadline, std::string_view what,
                            int64_t* received_bytes = nullptr,
                            const std::function<absl::Status()>* meanwhile = nullptr);

  // From now on every Wait of this communicator also advances the transfers of `passenger`, and fails if they fail.
  // For a transport that sends its own control messages through this one (nccl_communicator.h) and must progress
  // while its rank waits. Null: no passenger.
  void Carry(Communicator* passenger);

  // Withdraws this rank's posted transfers, also those of its passenger (Carry). Afterwards all calls of this rank but
  // Abort fail, and the peers' waits for this rank end at their deadlines. A rank that ends early must call it before
  // it frees the buffers.
  // In-process: no transfer accesses a buffer afterwards. MPI: unmatched receives are cancelled; a send, or a receive
  // in the middle of its message, cannot be cancelled, but no MPI call follows, so the caller should call Abort soon.
  // NCCL: aborts what is in progress on the device.
  void Withdraw();

  // Returns the Wait in progress of this communicator or its passenger; nullopt if there is none or it has just begun.
  // Any thread may call it.
  std::optional<WaitInProgress> CurrentWait() const;

  // Ends the whole job with `exit_code`. In-process: makes every rank's pending and later calls fail with Unavailable.
  virtual void Abort(int exit_code) = 0;

 protected:
  // Withdraws the transfers of this communicator, without its passenger's. Idempotent.
  virtual void TakeBack() {}
  // As Progress, but returns errors. Called on a passenger by the communicator that carries it.
  virtual absl::Status MoveAlong() {
    Progress();
    return absl::OkStatus();
  }
  // Pauses between two Tests of a Wait that has lasted for `waited` and may last for `remaining` more. Default: yields
  // at first, then sleeps. A transport whose peers can wake it blocks here instead.
  virtual void Pause(absl::Duration waited, absl::Duration remaining);

  // Aborts if the arguments of Send or Receive break their REQUIRES.
  void CheckTransfer(int64_t bytes, int peer, int tag) const;
  // Returns "rank 3, receive from rank 2, tag 5": the start of every transfer error.
  std::string Describe(const CommRequest& request) const;
  // Sets what CurrentWait returns.
  void SetCurrentWait(std::optional<WaitInProgress> wait);

 private:
  mutable std::mutex wait_mutex_;  // guards current_wait_ and passenger_, which CurrentWait reads on another thread
  Communicator* passenger_ = nullptr;
  std::optional<WaitInProgress> current_wait_;
};

// Returns `result`, an absl::Status or StatusOr of work that has posted transfers. If it is an error, withdraws the
// transfers first, because their buffers may be freed next.
template <typename Result>
Result WithdrawOnError(Result result, Communicator& communicator) {
  if (!result.ok()) communicator.Withdraw();
  return result;
}

}  // namespace hadal
