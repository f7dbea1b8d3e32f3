#include "runtime/comm/nccl_control_channel.h"

#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {

absl::Status NcclControlChannel::Listen() {
  HADAL_ASSIGN_OR_RETURN(arrival_, control_.Receive(&inbox_, sizeof(inbox_), peer_, kNcclControlTag));
  return absl::OkStatus();
}

absl::Status NcclControlChannel::Say(const NcclMessage& message) {
  Outgoing& outgoing = outbox_.emplace_back(Outgoing{.message = message});
  HADAL_ASSIGN_OR_RETURN(outgoing.request,
                         control_.Send(&outgoing.message, sizeof(outgoing.message), peer_, kNcclControlTag));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<NcclMessage>> NcclControlChannel::Next() {
  if (!arrival_.active()) return std::nullopt;
  HADAL_ASSIGN_OR_RETURN(const bool arrived, control_.Test(arrival_));
  if (!arrived) return std::nullopt;
  const NcclMessage message = inbox_;
  if (message.word != NcclMessage::Word::kLast) HADAL_RETURN_IF_ERROR(Listen());
  return message;
}

absl::Status NcclControlChannel::ForgetSent() {
  while (!outbox_.empty()) {
    HADAL_ASSIGN_OR_RETURN(const bool sent, control_.Test(outbox_.front().request));
    if (!sent) break;
    outbox_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace hadal
