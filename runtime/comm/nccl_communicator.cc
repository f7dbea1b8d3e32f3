#include "runtime/comm/nccl_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kScratchBytes = 256;

}  // namespace

NcclCommunicator::NcclCommunicator(Device& device, Communicator& control, absl::Duration timeout)
    : device_(device), control_(control), timeout_(timeout), transfers_(device), peer_of_rank_(control.size()) {}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(NcclLibrary& library, Device& device,
                                                                           Communicator& control,
                                                                           std::span<const TransferGroup> groups,
                                                                           absl::Duration timeout) {
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(device, control, timeout));
  HADAL_ASSIGN_OR_RETURN(made->scratch_, device.Allocate(kScratchBytes));
  HADAL_RETURN_IF_ERROR(made->transfers_.MakeEnds());
  made->AddPeer(control.rank(), nullptr);
  const LinkMaking making{.library = library,
                          .device = device,
                          .control = control,
                          .scratch = made->scratch_,
                          .scratch_bytes = kScratchBytes,
                          .timeout = timeout};
  for (const TransferGroup& group : groups) {
    if (group.pairs.empty() || !std::binary_search(group.ranks.begin(), group.ranks.end(), control.rank())) continue;
    HADAL_ASSIGN_OR_RETURN(GroupLinks links, ConnectGroup(making, group));
    if (links.both != nullptr) {
      HADAL_RETURN_IF_ERROR(made->JoinExchanges(std::move(links.both), group));
      continue;
    }
    for (const RankPair& pair : group.pairs) {
      if (pair.first == control.rank()) made->AddPeer(pair.second, &links);
      if (pair.second == control.rank()) made->AddPeer(pair.first, &links);
    }
    for (std::unique_ptr<NcclLink>* const link : {&links.up, &links.down}) made->links_.push_back(std::move(*link));
  }
  for (const std::unique_ptr<Peer>& peer : made->peers_) {
    if (peer->rank != control.rank()) HADAL_RETURN_IF_ERROR(peer->channel.Listen());
  }
  control.Carry(made.get());
  device.OnStandstill([communicator = made.get()] { communicator->Quieten(); });
  return made;
}

void NcclCommunicator::AddPeer(int rank, const GroupLinks* links) {
  HADAL_CHECK(peer_of_rank_[rank] == nullptr);
  NcclLink* const to = links == nullptr ? nullptr : &links->Of(this->rank(), rank);
  NcclLink* const from = links == nullptr ? nullptr : &links->Of(rank, this->rank());
  peers_.push_back(std::make_unique<Peer>(rank, to, from, control_));
  peer_of_rank_[rank] = peers_.back().get();
}

absl::Status NcclCommunicator::JoinExchanges(std::unique_ptr<NcclLink> link, const TransferGroup& group) {
  HADAL_CHECK(!exchanges_.has_value());
  links_.push_back(std::move(link));
  exchanges_.emplace(device_, *links_.back());
  for (const int member : group.ranks) {
    if (member == rank()) continue;
    if (peer_of_rank_[member] == nullptr) AddPeer(member, nullptr);
    exchanges_->AddMember(member, peer_of_rank_[member]->channel);
  }
  return exchanges_->MakeEnds();
}

NcclCommunicator::~NcclCommunicator() {
  device_.OnStandstill(nullptr);
  control_.Carry(nullptr);
  TakeBack();
  links_.clear();
  if (scratch_ != nullptr) device_.Free(scratch_);
}

NcclCommunicator::Peer& NcclCommunicator::PeerOf(int rank) {
  Peer* const peer = peer_of_rank_[rank];
  if (peer == nullptr || (peer->to == nullptr && rank != this->rank())) {
    CheckFailed(__FILE__, __LINE__, absl::StrCat("ranks ", this->rank(), " and ", rank, " were not connected"));
  }
  return *peer;
}

absl::Status NcclCommunicator::CheckOpen() {
  if (!error_.ok()) return std::exchange(error_, absl::OkStatus());
  if (!closed_) return absl::OkStatus();
  return UnavailableError("rank ", rank(), ": communication ended with an earlier error");
}

absl::Status NcclCommunicator::Reserve(int64_t transfers) { return transfers_.Reserve(transfers); }

absl::StatusOr<int64_t> NcclCommunicator::Post(const NcclTransfer& transfer) {
  CheckTransfer(transfer.bytes, transfer.peer, transfer.tag);
  HADAL_RETURN_IF_ERROR(CheckOpen());
  return transfers_.Post(transfer);
}

absl::StatusOr<CommRequest> NcclCommunicator::Send(const void* data, int64_t bytes, int peer, int tag) {
  auto* const read_only = static_cast<std::byte*>(const_cast<void*>(data));
  HADAL_ASSIGN_OR_RETURN(const int64_t id,
                         Post({.is_send = true, .data = read_only, .bytes = bytes, .peer = peer, .tag = tag}));
  PeerOf(peer).unready.push_back(id);
  HADAL_RETURN_IF_ERROR(OfferReady(PeerOf(peer)));
  return CommRequest{.id = id, .is_send = true, .peer = peer, .tag = tag};
}

// Offers in the order of the sends, so that sends with one tag stay in order.
absl::Status NcclCommunicator::OfferReady(Peer& peer) {
  while (!peer.unready.empty()) {
    const int64_t id = peer.unready.front();
    const bool to_self = peer.rank == rank();  // a copy on the main queue
    if (!to_self && !transfers_.IsReady(id)) break;
    const NcclMessage offer{
        .word = Word::kOffer, .tag = transfers_[id].tag, .transfer = id, .bytes = transfers_[id].bytes};
    peer.unready.pop_front();
    HADAL_RETURN_IF_ERROR(to_self ? Hear(peer, offer) : peer.channel.Say(offer));
  }
  return absl::OkStatus();
}

absl::StatusOr<CommRequest> NcclCommunicator::Receive(void* data, int64_t capacity_bytes, int peer, int tag) {
  HADAL_ASSIGN_OR_RETURN(
      const int64_t id,
      Post({.data = static_cast<std::byte*>(data), .bytes = capacity_bytes, .peer = peer, .tag = tag}));
  Peer& from = PeerOf(peer);
  const auto offer = std::ranges::find(from.offers, tag, &NcclMessage::tag);
  if (offer == from.offers.end()) {
    from.receives.push_back(id);
  } else {
    const NcclMessage matched = *offer;
    from.offers.erase(offer);
    HADAL_RETURN_IF_ERROR(Match(from, id, matched));
    HADAL_RETURN_IF_ERROR(StartMatched());
  }
  return CommRequest{.id = id, .is_send = false, .peer = peer, .tag = tag};
}

absl::Status NcclCommunicator::Exchange(std::span<const ExchangePart> parts, int tag, DeviceQueues::Event after,
                                        std::vector<CommRequest>& requests) {
  HADAL_CHECK(exchanges_.has_value());
  for (const ExchangePart& part : parts) {
    CheckTransfer(part.send_bytes, part.peer, tag);
    CheckTransfer(part.receive_bytes, part.peer, tag);
  }
  HADAL_RETURN_IF_ERROR(CheckOpen());
  requests.push_back({.id = exchanges_->Post(parts, after), .peer = CommRequest::kAllPeers, .tag = tag});
  return MoveExchanges();
}

absl::Status NcclCommunicator::MoveExchanges() {
  if (!exchanges_.has_value()) return absl::OkStatus();
  exchanges_->NoteEnds();
  if (!quiet_) HADAL_RETURN_IF_ERROR(exchanges_->Declare());
  return exchanges_->Start();
}

absl::Status NcclCommunicator::Hear(Peer& peer, const NcclMessage& message) {
  switch (message.word) {
    case Word::kOffer: {
      const auto receive =
          std::ranges::find(peer.receives, message.tag, [&](int64_t id) { return transfers_[id].tag; });
      if (receive == peer.receives.end()) {
        peer.offers.push_back(message);
        return absl::OkStatus();
      }
      const int64_t id = *receive;
      peer.receives.erase(receive);
      return Match(peer, id, message);
    }
    case Word::kGrant:
      if (transfers_[message.transfer].bytes > 0) {
        transfers_[message.transfer].state = State::kMatched;
        matched_sends_.push_back(message.transfer);
        return absl::OkStatus();
      }
      [[fallthrough]];
    case Word::kRefusal:  // the receiver reports it
      transfers_[message.transfer].state = State::kDone;
      return absl::OkStatus();
    case Word::kReady:
      exchanges_->Hear(peer.rank, message.bytes);
      return absl::OkStatus();
    case Word::kLast:  // the channel has stopped listening
      return absl::OkStatus();
  }
  return InternalError("rank ", rank(), ": unknown message from rank ", peer.rank, "; do both run the same binary?");
}

absl::Status NcclCommunicator::Match(Peer& peer, int64_t receive, const NcclMessage& offer) {
  NcclTransfer& transfer = transfers_[receive];
  const bool fits = offer.bytes <= transfer.bytes;
  transfer.bytes = offer.bytes;
  transfer.partner = offer.transfer;
  transfer.state = !fits ? State::kTooLong : offer.bytes == 0 ? State::kDone : State::kMatched;
  if (peer.rank == rank()) {
    CopyToSelf(receive, offer.transfer);
    return absl::OkStatus();
  }
  if (transfer.state == State::kMatched) {
    matched_receives_.push_back(receive);
    return absl::OkStatus();
  }
  return peer.channel.Say({.word = fits ? Word::kGrant : Word::kRefusal, .transfer = offer.transfer});
}

void NcclCommunicator::CopyToSelf(int64_t receive, int64_t send) {
  NcclTransfer& to = transfers_[receive];
  NcclTransfer& from = transfers_[send];
  if (to.state == State::kMatched) {
    device_.CopyWithin(to.data, from.data, from.bytes);
    to.state = State::kDone;
  }
  from.state = State::kDone;
}

absl::Status NcclCommunicator::StartReceive(int64_t id) {
  NcclTransfer& transfer = transfers_[id];
  Peer& peer = PeerOf(transfer.peer);
  HADAL_RETURN_IF_ERROR(transfers_.Start(id, *peer.from));
  return peer.channel.Say({.word = Word::kGrant, .transfer = transfer.partner});
}

// On each link in the order of the grants, except that a receive whose buffer is still in use holds up none.
absl::Status NcclCommunicator::StartReceives() {
  std::vector<const NcclLink*> held_up;  // by receives in progress from another peer
  for (auto next = matched_receives_.begin(); !quiet_ && next != matched_receives_.end();) {
    if (!transfers_.HasRoom(/*is_send=*/false)) break;
    const int peer = transfers_[*next].peer;
    const NcclLink* const link = PeerOf(peer).from;
    if (!transfers_.IsReady(*next) || std::find(held_up.begin(), held_up.end(), link) != held_up.end()) {
      ++next;
      continue;
    }
    if (!transfers_.MayReceive(peer, *link)) {
      held_up.push_back(link);
      ++next;
      continue;
    }
    const int64_t id = *next;
    next = matched_receives_.erase(next);
    HADAL_RETURN_IF_ERROR(StartReceive(id));
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::StartMatched() {
  HADAL_RETURN_IF_ERROR(StartReceives());
  while (!matched_sends_.empty() && transfers_.HasRoom(/*is_send=*/true)) {
    const int64_t id = matched_sends_.front();
    HADAL_RETURN_IF_ERROR(transfers_.Start(id, *PeerOf(transfers_[id].peer).to));
    matched_sends_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Move() {
  control_.Progress();
  for (const std::unique_ptr<Peer>& peer : peers_) {
    HADAL_RETURN_IF_ERROR(OfferReady(*peer));
    HADAL_RETURN_IF_ERROR(peer->channel.ForgetSent());
    for (;;) {
      HADAL_ASSIGN_OR_RETURN(const std::optional<NcclMessage> message, peer->channel.Next());
      if (!message.has_value()) break;
      HADAL_RETURN_IF_ERROR(Hear(*peer, *message));
    }
  }
  for (const std::unique_ptr<NcclLink>& link : links_) HADAL_RETURN_IF_ERROR(link->Check());
  transfers_.NoteArrivals();
  HADAL_RETURN_IF_ERROR(MoveExchanges());
  return StartMatched();
}

absl::Status NcclCommunicator::MoveAlong() {
  if (closed_) return std::exchange(error_, absl::OkStatus());
  absl::Status status = Move();
  if (!status.ok()) TakeBack();
  return status;
}

void NcclCommunicator::Progress() {
  if (!closed_) error_ = MoveAlong();
}

void NcclCommunicator::Quieten() {
  const auto under_way = [this] {
    return closed_ ? size_t{0} : transfers_.under_way() + (exchanges_ ? exchanges_->under_way() : 0);
  };
  if (under_way() == 0) return;
  quiet_ = true;
  const Stopwatch watch;
  SetCurrentWait(WaitInProgress{absl::StrCat("rank ", rank(), ", for transfers to end before its device's standstill"),
                                MonotonicSeconds()});
  for (Progress(); under_way() > 0; Progress()) {
    const absl::Duration waited = absl::Seconds(watch.Seconds());
    if (waited >= timeout_) {
      error_ = DeadlineExceededError(
          "rank ", rank(), ": gave up after ", absl::FormatDuration(waited), " waiting for ", under_way(),
          " transfers to end before its device may have to wait for them. Their other rank is slow, "
          "stopped or gone; see the logs");
      TakeBack();
      break;
    }
    Pause(waited, timeout_ - waited);
  }
  SetCurrentWait(std::nullopt);
  quiet_ = false;
}

absl::StatusOr<bool> NcclCommunicator::Test(CommRequest& request, int64_t* received_bytes) {
  HADAL_CHECK(request.active());
  HADAL_RETURN_IF_ERROR(CheckOpen());
  HADAL_RETURN_IF_ERROR(MoveAlong());
  if (request.peer == CommRequest::kAllPeers) {
    if (!exchanges_->Ended(request.id)) return false;
    request.id = CommRequest::kNone;
    return true;
  }
  NcclTransfer& transfer = transfers_[request.id];
  HADAL_CHECK(transfer.in_use && transfer.is_send == request.is_send);
  if (transfer.state == State::kTooLong) {
    absl::Status status = InternalError(Describe(request), ": a message of ", transfer.bytes,
                                        " bytes is longer than the receive; sender and receiver disagree on the shape");
    TakeBack();
    return status;
  }
  if (transfer.state != State::kDone) return false;
  if (!request.is_send && received_bytes != nullptr) *received_bytes = transfer.bytes;
  transfers_.End(request.id);
  request.id = CommRequest::kNone;
  return true;
}

void NcclCommunicator::TakeBack() {
  if (std::exchange(closed_, true)) return;
  std::vector<NcclLink*> links;
  for (const std::unique_ptr<NcclLink>& link : links_) links.push_back(link.get());
  NcclLink::AbortAll(links);
}

void NcclCommunicator::Abort(int exit_code) {
  TakeBack();
  control_.Abort(exit_code);
}

absl::Status NcclCommunicator::Close(absl::Duration timeout) {
  HADAL_RETURN_IF_ERROR(CheckOpen());
  const Deadline deadline(timeout);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer->rank != rank()) HADAL_RETURN_IF_ERROR(peer->channel.Say({.word = Word::kLast}));
  }
  const auto waits = [](const std::unique_ptr<Peer>& peer) { return !peer->channel.is_over(); };
  for (const Stopwatch watch; std::any_of(peers_.begin(), peers_.end(), waits);) {
    HADAL_RETURN_IF_ERROR(MoveAlong());
    if (deadline.Passed()) {
      TakeBack();
      return DeadlineExceededError("rank ", rank(), ": another rank did not end its transfers in time");
    }
    Pause(absl::Seconds(watch.Seconds()), deadline.Left());
  }
  control_.Carry(nullptr);
  for (const std::unique_ptr<NcclLink>& link : links_) HADAL_RETURN_IF_ERROR(link->BeginClose());
  for (const std::unique_ptr<NcclLink>& link : links_) HADAL_RETURN_IF_ERROR(link->FinishClose(deadline));
  closed_ = true;
  return absl::OkStatus();
}

}  // namespace hadal
