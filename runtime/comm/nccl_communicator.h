// Ranks whose buffers lie on devices of their own: bytes go from device to device by NCCL, and what there is to agree on goes through a
// communicator of the host (MPI), `control`.
//
//   sender                            receiver
//   Send(tag, bytes)
//   its bytes are there ── offer ──►  meets the oldest Receive of that tag, now or when it is posted
//                       ◄─ grant ──   its NCCL receive is started, once its buffer is free
//   NCCL send started   ═ message ═►  written when the kernels before Receive are done with the buffer
//
// Why: NCCL matches messages in the order in which both ranks start them, knows no tags and no lengths, and a kernel of it that waits for
// its partner holds a part of the GPU. Here a message is started only when both sides are known to be there, in the order of the grants.
// So tags are independent, lengths are checked before a byte moves, and what runs never waits for what has not been started, whatever the
// schedule: that is also why two ranks may send to each other. Each direction of a pair is a link of its own (nccl_link.h: communicator and
// queue), so that no message waits behind one of the other direction. At most kMostUnderWay messages each way run at once, so that all of
// NCCL's kernels find room on the GPU; a message beyond them is started when one ends, and since a started message always has its partner
// started, one does.
//
// Order on the device: a message reads what kernels put into the main order before Send have written, and writes when those before
// Receive are done; the host waits for neither. An offer is made, and a receive started, only when the host sees those kernels done (in
// Progress): a kernel of NCCL's that waited for its own or its partner's kernels would hold a part of the GPU meanwhile, and a place among
// those under way. When Test has said that a receive is done, kernels from there on see what it wrote.
// Standstill: before the host does what may make it wait for the whole device (runtime/device.h), it lets all that is started here end, and
// starts no receive meanwhile, but what sends it is granted. Else two ranks can wait for each other for ever: each in such a call, behind a
// receive whose sender's host is in the other's. That the wait ends:
//   · a rank inside such a call has nothing started here, only kernels, so the call returns;
//   · a rank that waits has a finite number of sends posted, and starts no receive, so it starts finitely many messages more;
//   · of a send that is started the receive is, on a device whose host is not in such a call; so it ends;
//   · of a receive that is started the sender's host has been sent the grant. It starts the send in its next call here, the wait among them;
//     so it ends.
// A wait that does not end (a peer that is stopped or gone) stops all links behind the timeout; the next call here says so.
//
// Links are made by Create, all of them, in one order on all ranks (nccl_peer_links.h), and each has moved a first message by then.
//
// Errors: beside the interface's, Unavailable when NCCL reports an asynchronous error: every Progress looks. The first error stops all
// links (ncclCommAbort), so that nothing on the device waits for ever; then only Abort is useful.
// The end. Transfers hold places in an arena that is not this object's; whatever way a rank ends, they go first:
//   all is well       every request has been waited for; arena; Close, with all ranks; this object; library, device
//   a wait's error    (a lost peer, NCCL's word, a deadline, be it this rank's patience or the watchdog's) the wait withdraws: links stopped; arena;
//                     `control` aborts the job; this object
//   an own error      in the middle of a program: whoever runs it withdraws (WithdrawOnError), before it lets anybody see the error; then as above.
//                     Matched receives that were not started never are; peers find a lost peer or their deadline, or are ended by the abort
//   a fault, a kill   the process ends with the driver's words or the signal, and no destructor runs; peers as above
// Stopped links first because the arena's memory is given back behind all that runs on the device: what waits for a peer would hold that up for ever.
// Memory: NCCL's own buffers, per link, beside the arena; 256 bytes of the device. Events are made by Create and Reserve: making one may be a
// standstill (runtime/device.h). Threads: one, the device's; it also owns `control`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/message_tags.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/comm/nccl_peer_links.h"
#include "runtime/device.h"

namespace hadal {

class NcclCommunicator final : public Communicator {
 public:
  static constexpr int kMostUnderWay = 8;  // each way
  // Of `control`, which are then not the caller's: above the channels' numbers, below the collectives'.
  static constexpr int kIdTag = kNcclIdTag, kControlTag = kNcclControlTag;

  // Connects `pairs`, the same on all ranks; a pair that is not among them cannot exchange messages, but each rank can with itself.
  // Blocking: all ranks of `control` call it. Library, device and control must outlive it. `timeout`: of this, and of the waits before
  // standstills, of which the device then tells this object.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(NcclLibrary& library, Device& device,
                                                                  Communicator& control,
                                                                  std::span<const RankPair> pairs,
                                                                  absl::Duration timeout);
  // REQUIRES: Close has succeeded, or `control` is aborted or closed: else a peer's word might still be on its way to this object.
  ~NcclCommunicator() override;

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> ReceiveBehind(DeviceQueues::Queue queue, void* data, int64_t capacity_bytes, int peer,
                                            int tag) override;
  absl::Status Reserve(int64_t transfers) override;
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) override;
  void Progress() override;
  // Also aborts `control`.
  void Abort(int exit_code) override;

  // How many events were made in the middle of a program, for transfers that nobody had reserved.
  int64_t unreserved() const { return unreserved_; }

  // The clean end of all links. Blocking: every rank calls it, with all its requests done. Afterwards all calls fail.
  absl::Status Close(absl::Duration timeout);

 protected:
  absl::Status MoveAlong() override;
  void TakeBack() override;

 private:
  enum class State { kPosted, kMatched, kStarted, kDone, kTooLong };
  struct Transfer {
    State state = State::kPosted;
    bool in_use = false, is_send = false;
    std::byte* data = nullptr;
    int64_t bytes = 0;  // a send's length; a receive's capacity, then the length of what comes
    int peer = 0, tag = 0;
    int64_t partner = 0;                  // of a receive that is matched: the sender's number for it
    DeviceQueues::Event ready = nullptr;  // the slot's own
    DeviceQueues::Event done = nullptr;   // while it is started
  };
  enum class Word : int32_t { kOffer, kGrant, kRefusal, kFarewell };
  struct Message {
    Word word = Word::kOffer;
    int32_t tag = 0;
    int64_t transfer = 0;  // the sender's number
    int64_t bytes = 0;
  };
  struct Outgoing {
    Message message;
    CommRequest request;
  };
  struct Peer : PeerLinks {
    explicit Peer(PeerLinks links) : PeerLinks(std::move(links)) {}

    Message inbox;
    CommRequest arrival;
    std::deque<Outgoing> outbox;
    std::deque<int64_t> unready;   // sends not offered yet, in the order in which they were posted
    std::deque<Message> offers;    // not matched yet
    std::deque<int64_t> receives;  // not matched yet, in the order in which they were posted
    bool left = false;
  };

  NcclCommunicator(Device& device, Communicator& control, absl::Duration timeout);
  void AddPeer(PeerLinks links);
  // A slot for one transfer more.
  absl::Status AddSlot();
  // `queue`: behind what in it the transfer may touch its bytes.
  absl::StatusOr<int64_t> Post(Transfer transfer, DeviceQueues::Queue queue);
  absl::Status OfferReady(Peer& peer);
  absl::Status CheckOpen();
  Peer& PeerOf(int rank);

  absl::Status Say(Peer& peer, const Message& message);
  absl::Status Listen(Peer& peer);
  absl::Status Hear(Peer& peer, const Message& message);
  absl::Status Match(Peer& peer, int64_t receive, const Message& offer);
  void CopyToSelf(int64_t receive, int64_t send);
  absl::Status Start(NcclLink& link, Transfer& transfer);
  absl::Status StartMatched();
  absl::Status StartReceive(int64_t id);
  void NoteArrivals();
  absl::Status Move();
  // Waits until nothing is started.
  void Quieten();

  Device& device_;
  Communicator& control_;
  const absl::Duration timeout_;
  std::byte* scratch_ = nullptr;
  std::vector<std::unique_ptr<Peer>> peers_;  // in the order of their links
  std::vector<Peer*> peer_of_rank_;           // [size]; null: not connected
  std::deque<Transfer> transfers_;            // slots
  std::vector<int64_t> free_ids_;
  int64_t reserved_ = 0, unreserved_ = 0;
  std::vector<DeviceQueues::Event> free_ends_;            // for `done` of those under way
  std::deque<int64_t> matched_sends_, matched_receives_;  // in the order of the grants; not started yet
  std::vector<int64_t> started_sends_, started_receives_;
  bool quiet_ = false;  // starts no receives
  absl::Status error_;  // found by Progress or Quieten, not told yet
  bool closed_ = false;
};

}  // namespace hadal
