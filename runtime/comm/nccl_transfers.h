// The transfers that a rank of an NcclCommunicator has posted and not ended yet, and which of them are under way on its
// device.
//
//   Post ──► kPosted ──► kMatched ──► kStarted ──► kDone ──► End
//            (ranks agree, nccl_communicator.h)  (NoteArrivals)
// A transfer is a slot, whose number is its name; `ready` is the slot's event. The events that end messages are lent to
// those under way. All are made beforehand, because making one may be a standstill (runtime/device.h): a slot beyond
// those reserved is made where it is needed, and counted.
// Threads: one, the device's. Blocking: only what makes events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/device.h"

namespace hadal {

struct NcclTransfer {
  enum class State { kPosted, kMatched, kStarted, kDone, kTooLong };
  State state = State::kPosted;
  bool in_use = false, is_send = false;
  std::byte* data = nullptr;
  int64_t bytes = 0;  // a send's length; a receive's capacity, then the length of what comes
  int peer = 0, tag = 0;
  int64_t partner = 0;                  // of a matched receive: the sender's number of the transfer
  DeviceQueues::Event ready = nullptr;  // reached when the kernels before Send or Receive are done
  DeviceQueues::Event done = nullptr;   // reached when the started message has ended
};

class NcclTransfers {
 public:
  static constexpr int kMostUnderWay = 8;  // each way

  // `device` must outlive the object.
  explicit NcclTransfers(Device& device) : device_(device) {}
  // REQUIRES: nothing is under way any more (the links are gone).
  ~NcclTransfers();
  NcclTransfers(const NcclTransfers&) = delete;
  NcclTransfers& operator=(const NcclTransfers&) = delete;

  // Makes the events of messages under way. Called once, before all else.  Errors: ResourceExhausted.
  absl::Status MakeEnds();
  // Makes slots for that many more transfers at once.  Errors: ResourceExhausted.
  absl::Status Reserve(int64_t transfers);

  // Takes a slot; the transfer may touch its bytes once all that is in `queue` by now is done.
  // Errors: ResourceExhausted, where no slot was reserved for it.
  absl::StatusOr<int64_t> Post(NcclTransfer transfer, DeviceQueues::Queue queue);
  // REQUIRES: its slot is in use. It stays where it is until End.
  NcclTransfer& operator[](int64_t id) { return slots_[id]; }
  // Whether the kernels that it waits for are done.
  bool IsReady(int64_t id) const { return device_.queues().Reached(slots_[id].ready); }
  // Gives the slot back.
  void End(int64_t id);

  // Whether one more message of this direction may be under way.
  bool HasRoom(bool is_send) const { return UnderWay(is_send).size() < kMostUnderWay; }
  // Starts the message on its link.  REQUIRES: HasRoom. Errors: those of NcclLink::Start.
  absl::Status Start(int64_t id, NcclLink& link);
  // Messages that have ended become kDone.
  void NoteArrivals();
  size_t under_way() const { return started_sends_.size() + started_receives_.size(); }

  // How many slots were made in the middle of a program, because more transfers were posted than reserved.
  int64_t unreserved() const { return unreserved_; }

 private:
  absl::Status AddSlot();
  const std::vector<int64_t>& UnderWay(bool is_send) const { return is_send ? started_sends_ : started_receives_; }

  Device& device_;
  std::deque<NcclTransfer> slots_;
  std::vector<int64_t> free_ids_;
  int64_t reserved_ = 0, unreserved_ = 0;
  std::vector<DeviceQueues::Event> free_ends_;  // events for `done` of messages to be started
  std::vector<int64_t> started_sends_, started_receives_;
};

}  // namespace hadal
