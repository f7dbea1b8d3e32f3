#include "runtime/comm/group_communicator.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace hadal {
namespace {

// Tags of one range of collectives: many more than collectives.h uses.
constexpr int kTagsASpace =
    (Communicator::kTagLimit - Communicator::kFirstCollectiveTag) / GroupCommunicator::kTagSpaces;

}  // namespace

GroupCommunicator::GroupCommunicator(Communicator& parent, std::vector<int> members, int tag_space)
    : parent_(parent), members_(std::move(members)), tag_space_(tag_space) {
  HADAL_CHECK_GE(tag_space, 1);
  HADAL_CHECK_LT(tag_space, kTagSpaces);
  const auto self = std::find(members_.begin(), members_.end(), parent.rank());
  HADAL_CHECK(self != members_.end());
  rank_ = static_cast<int>(self - members_.begin());
}

int GroupCommunicator::TagOf(int tag) const {
  if (tag < kFirstCollectiveTag) return tag;
  HADAL_CHECK_LT(tag, kFirstCollectiveTag + kTagsASpace);
  return tag + tag_space_ * kTagsASpace;
}

absl::StatusOr<CommRequest> GroupCommunicator::Send(const void* data, int64_t bytes, int peer, int tag) {
  CheckTransfer(bytes, peer, tag);
  return parent_.Send(data, bytes, members_[peer], TagOf(tag));
}

absl::StatusOr<CommRequest> GroupCommunicator::Receive(void* data, int64_t capacity_bytes, int peer, int tag) {
  CheckTransfer(capacity_bytes, peer, tag);
  return parent_.Receive(data, capacity_bytes, members_[peer], TagOf(tag));
}

absl::Status GroupCommunicator::Exchange(std::span<const ExchangePart> parts, int tag, DeviceQueues::Event after,
                                         std::vector<CommRequest>& requests) {
  std::vector<ExchangePart> of_parent(parts.begin(), parts.end());
  for (ExchangePart& part : of_parent) {
    CheckTransfer(part.send_bytes, part.peer, tag);
    part.peer = members_[part.peer];
  }
  return parent_.Exchange(of_parent, TagOf(tag), after, requests);
}

absl::StatusOr<bool> GroupCommunicator::Test(CommRequest& request, int64_t* received_bytes) {
  return parent_.Test(request, received_bytes);
}

absl::Status GroupCommunicator::Wait(CommRequest& request, absl::Time deadline, std::string_view what,
                                     int64_t* received_bytes, const std::function<absl::Status()>* meanwhile) {
  return parent_.Wait(request, deadline, what, received_bytes, meanwhile);
}

}  // namespace hadal
