// The table of the transfers (sends and receives) that a rank of an NcclCommunicator has posted and not yet ended. It
// also starts their messages on the device, and notes when a message has ended. The states of a transfer:
//
//   kPosted    Post has assigned a slot of the table to the transfer; the slot's index is the transfer's id
//   kMatched   the communicator has paired it with the peer's transfer (offers and grants, nccl_communicator.h)
//   kStarted   Start has enqueued the NCCL message; at most kMostUnderWay messages of a direction are in this state
//   kDone      NoteArrivals has found that the message has ended. (An empty message, and a send whose message is longer
//              than the receive's buffer, goes from kPosted to kDone.)
//   kTooLong   instead of kMatched, for a receive: the message is longer than its buffer
// End frees the slot.
// Device events: each slot has an event `ready`, reached when the kernels enqueued before Post are done. Each message
// in progress has an event `done`, taken from a common pool. Events are made in advance (MakeEnds, Reserve), because
// making one may wait for the whole device (runtime/device.h). If more transfers are posted than reserved, a slot is
// made at once, and counted (unreserved).
// Threads: only the thread that makes the device's calls. Blocking: only functions that make events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/device.h"

namespace hadal {

struct NcclTransfer {
  enum class State { kPosted, kMatched, kStarted, kDone, kTooLong };
  State state = State::kPosted;
  bool in_use = false, is_send = false;
  std::byte* data = nullptr;
  int64_t bytes = 0;  // a send's length; a receive's capacity, then the length of its message
  int peer = 0, tag = 0;
  int64_t partner = 0;                  // of a matched receive: the sender's transfer id
  DeviceQueues::Event ready = nullptr;  // reached when the kernels before Send or Receive are done
  DeviceQueues::Event done = nullptr;   // reached when the started message has ended
  const NcclLink* link = nullptr;       // of a started message
};

class NcclTransfers {
 public:
  static constexpr int kMostUnderWay = 8;  // per direction

  // `device` must outlive the object.
  explicit NcclTransfers(Device& device) : device_(device) {}
  // REQUIRES: nothing is in progress (the links are destroyed).
  ~NcclTransfers();
  NcclTransfers(const NcclTransfers&) = delete;
  NcclTransfers& operator=(const NcclTransfers&) = delete;

  // Makes the events for `done`. Must be called once, before all other methods. Errors: ResourceExhausted.
  absl::Status MakeEnds();
  // Makes slots for `transfers` more concurrent transfers. Errors: ResourceExhausted.
  absl::Status Reserve(int64_t transfers);

  // Assigns a slot. The transfer may access its bytes after the work enqueued on the main queue so far. Errors:
  // ResourceExhausted if no slot was reserved and none can be made.
  absl::StatusOr<int64_t> Post(NcclTransfer transfer);
  // REQUIRES: the slot is in use. The reference is valid until End.
  NcclTransfer& operator[](int64_t id) { return slots_[id]; }
  // Whether the kernels before Send or Receive are done.
  bool IsReady(int64_t id) const { return device_.queues().Reached(slots_[id].ready); }
  // Frees the slot.
  void End(int64_t id);

  // Whether another message of this direction may be started.
  bool HasRoom(bool is_send) const { return UnderWay(is_send).size() < kMostUnderWay; }
  // Whether a receive from `peer` may be started on `link`: all receives in progress there are from this peer.
  // nccl_communicator.md has the reason.
  bool MayReceive(int peer, const NcclLink& link) const;
  // Starts the message on its link. REQUIRES: HasRoom, and MayReceive for a receive. Errors: those of NcclLink::Start.
  absl::Status Start(int64_t id, NcclLink& link);
  // Sets messages that have ended to kDone.
  void NoteArrivals();
  // The number of transfers in state kStarted.
  size_t under_way() const { return started_sends_.size() + started_receives_.size(); }

  // The number of slots that were made in the middle of a step because more transfers were posted than reserved.
  int64_t unreserved() const { return unreserved_; }

 private:
  absl::Status AddSlot();
  const std::vector<int64_t>& UnderWay(bool is_send) const { return is_send ? started_sends_ : started_receives_; }

  Device& device_;
  std::deque<NcclTransfer> slots_;
  std::vector<int64_t> free_ids_;
  int64_t reserved_ = 0, unreserved_ = 0;
  std::vector<DeviceQueues::Event> free_ends_;  // unused events for `done`
  std::vector<int64_t> started_sends_, started_receives_;
};

}  // namespace hadal
