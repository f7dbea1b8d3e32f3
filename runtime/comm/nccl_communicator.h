// NcclCommunicator transfers messages between the GPUs of ranks with NCCL. Each rank has a GPU. Before each transfer,
// sender and receiver agree on its start by short messages over `control`, a communicator in host memory (MPI).
//
//   sender                            receiver
//   Send(tag, bytes)
//   bytes are written       ── offer ──►  matched with the oldest Receive of that tag, now or when that is posted
//                           ◄─ grant ──   NCCL receive is started, once the receive buffer is free
//   NCCL send is started    ═ message ═►  written after the kernels before Receive
//
// An exchange (Exchange) needs no offers. Each rank of a group (nccl_groups.h) reports to the others when its own bytes
// of the exchange may be accessed, and starts its messages, all at once, when all ranks have done so
// (nccl_exchanges.h).
//
// nccl_communicator.md has the reasons for offers and grants, and the proof that no rank waits forever. It assumes that
// no two streams of a rank share a hardware queue of the GPU.
// Order on the device: a message reads what kernels launched before Send have written, and is written after the kernels
// launched before Receive. The host does not wait; Progress makes the offer, or starts the receive, when those kernels
// are done. Once Test has returned true for a receive, kernels launched later see its bytes.
// Standstill: before a driver call that may wait for the whole device (runtime/device.h), this rank waits until all its
// started messages have ended. During this wait it starts no receives, only granted sends, and declares no exchanges.
// If the wait exceeds the timeout, all links are stopped, and the next call returns the error.
// Limits: kMostUnderWay messages in progress in each direction (nccl_transfers.h), NcclExchanges::kMostUnderWay
// exchanges; further ones wait.
// Errors: those of the interface, and those of NcclLink if NCCL reports an asynchronous error (checked by every
// Progress).
// The first error stops all links (ncclCommAbort), so that nothing on the device waits forever. Only Abort is useful
// afterwards.
// Shutdown: transfers must end before the arena that they use is freed. nccl_communicator.md has the order of shutdown,
// with and without an error.
// Memory: NCCL's own buffers for each pair and direction, outside of the arena, and 256 bytes of the device.
// Threads: only the thread that makes the device's calls; it also makes all calls to `control`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl_control_channel.h"
#include "runtime/comm/nccl_exchanges.h"
#include "runtime/comm/nccl_groups.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/comm/nccl_transfers.h"
#include "runtime/device.h"

namespace hadal {

class NcclCommunicator final : public Communicator {
 public:
  static constexpr int kMostUnderWay = NcclTransfers::kMostUnderWay;  // each way

  // Connects `groups` (nccl_groups.h), the same list in the same order on all ranks. When Create returns, the ranks of
  // each pair have exchanged their first messages. Only ranks that form a pair can send to each other; every rank can
  // send to itself. Exchange is between the ranks of this rank's group for exchanges; in the list such groups come
  // after those for messages.
  // Blocking: all ranks of `control` must call it. Library, device and control must outlive the communicator.
  // `timeout`: of this call, and of each wait before a standstill. Errors: those of nccl_groups.h, NcclLink
  // and `control`; ResourceExhausted if the device lacks the memory.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(NcclLibrary& library, Device& device,
                                                                  Communicator& control,
                                                                  std::span<const TransferGroup> groups,
                                                                  absl::Duration timeout);
  // REQUIRES: Close has succeeded, or `control` is aborted or closed; otherwise a peer's message could still arrive.
  ~NcclCommunicator() override;

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override;
  absl::Status Exchange(std::span<const ExchangePart> parts, int tag, DeviceQueues::Event after,
                        std::vector<CommRequest>& requests) override;
  absl::Status Reserve(int64_t transfers) override;
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) override;
  void Progress() override;
  // Aborts `control`, too.
  void Abort(int exit_code) override;

  // The number of slots (nccl_transfers.h) that were not reserved but made in the middle of a step.
  int64_t unreserved() const { return transfers_.unreserved(); }

  // Ends all links without an error. Blocking: every rank must call it. REQUIRES: this rank's requests are done.
  // Afterwards all calls fail.
  absl::Status Close(absl::Duration timeout);

 protected:
  absl::Status MoveAlong() override;
  void TakeBack() override;

 private:
  using State = NcclTransfer::State;
  using Word = NcclMessage::Word;
  struct Peer {
    Peer(int rank, NcclLink* to, NcclLink* from, Communicator& control)
        : rank(rank), to(to), from(from), channel(control, rank) {}

    const int rank;
    NcclLink *const to, *const from;  // null for this rank itself and for ranks of exchanges alone
    NcclControlChannel channel;       // unused for this rank itself
    std::deque<int64_t> unready;      // sends not offered yet, in the order posted
    std::deque<NcclMessage> offers;   // not matched yet
    std::deque<int64_t> receives;     // not matched yet, in the order posted
  };

  NcclCommunicator(Device& device, Communicator& control, absl::Duration timeout);
  // `links`: null for this rank itself, and for ranks of exchanges alone.
  void AddPeer(int rank, const GroupLinks* links);
  absl::Status JoinExchanges(std::unique_ptr<NcclLink> link, const TransferGroup& group);
  // Posts `transfer`, to run after the work enqueued on the main queue so far.
  absl::StatusOr<int64_t> Post(const NcclTransfer& transfer);
  absl::Status OfferReady(Peer& peer);
  absl::Status CheckOpen();
  Peer& PeerOf(int rank);

  absl::Status Hear(Peer& peer, const NcclMessage& message);
  absl::Status Match(Peer& peer, int64_t receive, const NcclMessage& offer);
  void CopyToSelf(int64_t receive, int64_t send);
  absl::Status StartMatched();
  absl::Status StartReceives();
  absl::Status StartReceive(int64_t id);
  absl::Status MoveExchanges();
  absl::Status Move();
  // Waits until no message is in progress.
  void Quieten();

  Device& device_;
  Communicator& control_;
  const absl::Duration timeout_;
  std::byte* scratch_ = nullptr;
  NcclTransfers transfers_;
  std::optional<NcclExchanges> exchanges_;                // if this rank is in a group for them
  std::vector<std::unique_ptr<NcclLink>> links_;          // of all groups of this rank
  std::vector<std::unique_ptr<Peer>> peers_;              // in the order of their groups
  std::vector<Peer*> peer_of_rank_;                       // [size]; null: not connected
  std::deque<int64_t> matched_sends_, matched_receives_;  // in the order of the grants; not started yet
  bool quiet_ = false;                                    // Quieten is waiting: no receive may start
  absl::Status error_;                                    // found by Progress or Quieten; returned by the next call
  bool closed_ = false;
};

}  // namespace hadal
