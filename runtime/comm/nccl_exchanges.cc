#include "runtime/comm/nccl_exchanges.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

int64_t BytesBetween(std::span<const ExchangePart> parts, int peer, int64_t ExchangePart::*bytes) {
  int64_t sum = 0;
  for (const ExchangePart& part : parts) sum += part.peer == peer ? part.*bytes : 0;
  return sum;
}

std::vector<NcclLink::Message> MessagesOf(std::span<const ExchangePart> parts) {
  std::vector<NcclLink::Message> messages;
  for (const ExchangePart& part : parts) {
    if (part.send_bytes > 0) {
      messages.push_back(
          {.is_send = true, .peer = part.peer, .data = const_cast<void*>(part.send), .bytes = part.send_bytes});
    }
    if (part.receive_bytes > 0) {
      messages.push_back({.peer = part.peer, .data = part.receive, .bytes = part.receive_bytes});
    }
  }
  return messages;
}

}  // namespace

NcclExchanges::~NcclExchanges() {
  for (DeviceQueues::Event end : ends_) device_.queues().DestroyEvent(end);
}

absl::Status NcclExchanges::MakeEnds() {
  for (int i = 0; i < kMostUnderWay; ++i) {
    HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Event end, device_.queues().MakeEvent());
    ends_.push_back(end);
  }
  return absl::OkStatus();
}

int64_t NcclExchanges::Post(std::span<const ExchangePart> parts, DeviceQueues::Event after) {
  HADAL_CHECK(after != nullptr);
  for (const ExchangePart& part : parts) HADAL_CHECK(members_.contains(part.peer));
  posted_.push_back({.parts = {parts.begin(), parts.end()}, .after = after});
  return ended_ + std::ssize(posted_) - 1;
}

absl::Status NcclExchanges::Declare() {
  while (declared_ < ended_ + std::ssize(posted_) && device_.queues().Reached(At(declared_).after)) {
    for (const auto& [rank, member] : members_) {
      const int64_t bytes = BytesBetween(At(declared_).parts, rank, &ExchangePart::send_bytes);
      HADAL_RETURN_IF_ERROR(
          member.channel->Say({.word = NcclMessage::Word::kReady, .transfer = declared_, .bytes = bytes}));
    }
    ++declared_;
  }
  return absl::OkStatus();
}

bool NcclExchanges::AllHaveDeclared() const {
  return started_ < declared_ && std::all_of(members_.begin(), members_.end(),
                                             [](const auto& member) { return !member.second.declared_bytes.empty(); });
}

absl::Status NcclExchanges::CheckBytes(const Posted& exchange) const {
  for (const auto& [rank, member] : members_) {
    const int64_t expected = BytesBetween(exchange.parts, rank, &ExchangePart::receive_bytes);
    if (member.declared_bytes.front() == expected) continue;
    return InternalError("exchange ", started_, ": rank ", rank, " sends ", member.declared_bytes.front(),
                         " bytes and ", expected, " are expected; sender and receiver disagree on the shape");
  }
  return absl::OkStatus();
}

absl::Status NcclExchanges::Start() {
  while (AllHaveDeclared() && under_way() < kMostUnderWay) {
    const Posted& exchange = At(started_);
    HADAL_RETURN_IF_ERROR(CheckBytes(exchange));
    const std::vector<NcclLink::Message> messages = MessagesOf(exchange.parts);
    if (!messages.empty()) {
      HADAL_RETURN_IF_ERROR(link_.Start(messages, exchange.after, ends_[started_ % kMostUnderWay]));
    }
    for (auto& [rank, member] : members_) member.declared_bytes.pop_front();
    ++started_;
  }
  return absl::OkStatus();
}

void NcclExchanges::NoteEnds() {
  // One without messages ends when it is started.
  const auto ended = [&] {
    return MessagesOf(posted_.front().parts).empty() || device_.queues().Reached(ends_[ended_ % kMostUnderWay]);
  };
  while (ended_ < started_ && ended()) {
    posted_.pop_front();
    ++ended_;
  }
}

}  // namespace hadal
