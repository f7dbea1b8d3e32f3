#include "runtime/comm/nccl_transfers.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {

NcclTransfers::~NcclTransfers() {
  DeviceQueues& queues = device_.queues();
  for (const NcclTransfer& transfer : slots_) {
    queues.DestroyEvent(transfer.ready);
    if (transfer.done != nullptr) queues.DestroyEvent(transfer.done);
  }
  for (DeviceQueues::Event end : free_ends_) queues.DestroyEvent(end);
}

absl::Status NcclTransfers::MakeEnds() {
  for (int i = 0; i < 2 * kMostUnderWay; ++i) {
    HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Event end, device_.queues().MakeEvent());
    free_ends_.push_back(end);
  }
  return absl::OkStatus();
}

absl::Status NcclTransfers::AddSlot() {
  HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Event ready, device_.queues().MakeEvent());
  free_ids_.push_back(std::ssize(slots_));
  slots_.push_back({.ready = ready});
  return absl::OkStatus();
}

absl::Status NcclTransfers::Reserve(int64_t transfers) {
  reserved_ += transfers;
  while (std::ssize(slots_) < reserved_) HADAL_RETURN_IF_ERROR(AddSlot());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> NcclTransfers::Post(NcclTransfer transfer) {
  if (free_ids_.empty()) {
    ++unreserved_;
    HADAL_RETURN_IF_ERROR(AddSlot());
  }
  const int64_t id = free_ids_.back();
  free_ids_.pop_back();
  transfer.in_use = true;
  transfer.ready = slots_[id].ready;
  slots_[id] = transfer;
  device_.queues().Record(transfer.ready, DeviceQueues::kMain);
  return id;
}

void NcclTransfers::End(int64_t id) {
  slots_[id].in_use = false;
  free_ids_.push_back(id);
}

bool NcclTransfers::MayReceive(int peer, const NcclLink& link) const {
  return std::all_of(started_receives_.begin(), started_receives_.end(),
                     [&](int64_t id) { return slots_[id].link != &link || slots_[id].peer == peer; });
}

absl::Status NcclTransfers::Start(int64_t id, NcclLink& link) {
  NcclTransfer& transfer = slots_[id];
  HADAL_CHECK(HasRoom(transfer.is_send));
  HADAL_CHECK(transfer.is_send || MayReceive(transfer.peer, link));
  transfer.link = &link;
  transfer.done = free_ends_.back();
  free_ends_.pop_back();
  transfer.state = NcclTransfer::State::kStarted;
  const NcclLink::Message message{
      .is_send = transfer.is_send, .peer = transfer.peer, .data = transfer.data, .bytes = transfer.bytes};
  HADAL_RETURN_IF_ERROR(link.Start({&message, 1}, transfer.ready, transfer.done));
  (transfer.is_send ? started_sends_ : started_receives_).push_back(id);
  return absl::OkStatus();
}

void NcclTransfers::NoteArrivals() {
  for (std::vector<int64_t>* started : {&started_sends_, &started_receives_}) {
    std::erase_if(*started, [&](int64_t id) {
      NcclTransfer& transfer = slots_[id];
      if (!device_.queues().Reached(transfer.done)) return false;
      free_ends_.push_back(std::exchange(transfer.done, nullptr));
      transfer.state = NcclTransfer::State::kDone;
      return true;
    });
  }
}

}  // namespace hadal
