#include "runtime/comm/nccl_groups.h"

#include <algorithm>
#include <tuple>

#include "absl/time/clock.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Sends an empty message to itself: fails if the host communicator has been aborted or closed.
absl::Status HostIsAlive(Communicator& control) {
  HADAL_ASSIGN_OR_RETURN(CommRequest sent, control.Send(nullptr, 0, control.rank(), kNcclIdTag));
  HADAL_ASSIGN_OR_RETURN(CommRequest received, control.Receive(nullptr, 0, control.rank(), kNcclIdTag));
  constexpr absl::Duration kSoon = absl::Seconds(10);
  HADAL_RETURN_IF_ERROR(control.Wait(received, absl::Now() + kSoon, "this rank itself"));
  return control.Wait(sent, absl::Now() + kSoon, "this rank itself");
}

// The lowest rank's identifier, on every rank of the group.
absl::StatusOr<NcclUniqueId> ShareId(const LinkMaking& making, const TransferGroup& group, const Deadline& deadline) {
  Communicator& control = making.control;
  NcclUniqueId id{};
  std::vector<CommRequest> requests;
  if (control.rank() == group.ranks.front()) {
    if (const NcclResult result = making.library.GetUniqueId(id); result != kNcclSuccess) {
      return UnavailableError("rank ", control.rank(),
                              ": NCCL provides no identifier: ", making.library.ErrorText(result, nullptr));
    }
    for (const int rank : group.ranks) {
      if (rank == control.rank()) continue;
      HADAL_ASSIGN_OR_RETURN(requests.emplace_back(), control.Send(id.data(), id.size(), rank, kNcclIdTag));
    }
  } else {
    HADAL_ASSIGN_OR_RETURN(requests.emplace_back(),
                           control.Receive(id.data(), id.size(), group.ranks.front(), kNcclIdTag));
  }
  for (CommRequest& request : requests) {
    HADAL_RETURN_IF_ERROR(control.Wait(request, absl::Now() + deadline.Left(), "an NCCL communicator's identifier"));
  }
  return id;
}

std::vector<NcclLink*> AllOf(const GroupLinks& links) {
  std::vector<NcclLink*> all;
  for (NcclLink* const link : {links.up.get(), links.down.get(), links.both.get()}) {
    if (link != nullptr) all.push_back(link);
  }
  return all;
}

absl::Status OpenLinks(const LinkMaking& making, const TransferGroup& group, const GroupLinks& links) {
  const auto alive = [&making] { return HostIsAlive(making.control); };
  for (NcclLink* const link : AllOf(links)) {
    const Deadline deadline(making.timeout);
    HADAL_ASSIGN_OR_RETURN(const NcclUniqueId id, ShareId(making, group, deadline));
    HADAL_RETURN_IF_ERROR(link->Open(id, deadline, alive));
  }
  const int self = making.control.rank();
  for (const RankPair& pair : InRounds(group.pairs)) {
    if (self != pair.first && self != pair.second) continue;
    const int other = self == pair.first ? pair.second : pair.first;
    const int64_t half = making.scratch_bytes / 2;
    const NcclLink::Message send{.is_send = true, .peer = other, .data = making.scratch, .bytes = half};
    const NcclLink::Message receive{.peer = other, .data = making.scratch + half, .bytes = half};
    if (links.both != nullptr) {
      const NcclLink::Message first[] = {send, receive};
      HADAL_RETURN_IF_ERROR(links.both->MoveFirst(first, Deadline(making.timeout), alive));
      continue;
    }
    for (const bool upwards : {true, false}) {
      const NcclLink::Message& first = upwards == (self == pair.first) ? send : receive;
      NcclLink& link = upwards ? *links.up : *links.down;
      HADAL_RETURN_IF_ERROR(link.MoveFirst({&first, 1}, Deadline(making.timeout), alive));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<RankPair> InRounds(std::vector<RankPair> pairs) {
  const auto key = [](const RankPair& p) {
    const int distance = p.second - p.first;
    return std::tuple(distance, p.first / distance % 2, p.first);
  };
  std::sort(pairs.begin(), pairs.end(), [&](const RankPair& a, const RankPair& b) { return key(a) < key(b); });
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

absl::StatusOr<GroupLinks> ConnectGroup(const LinkMaking& making, const TransferGroup& group) {
  HADAL_CHECK(std::is_sorted(group.ranks.begin(), group.ranks.end()));
  using Direction = NcclLink::Direction;
  const auto make = [&](Direction direction) {
    return std::make_unique<NcclLink>(making.library, making.device, group.ranks, making.control.rank(), direction);
  };
  GroupLinks links;
  if (group.kind == TransferGroup::Kind::kExchanges) {
    links.both = make(Direction::kBoth);
  } else {
    links.up = make(Direction::kUp);
    links.down = make(Direction::kDown);
  }
  const absl::Status opened = OpenLinks(making, group, links);
  if (opened.ok()) return links;
  // All at once: ending one link may wait for the other's kernel, which waits for a lost peer.
  NcclLink::AbortAll(AllOf(links));
  return opened;
}

}  // namespace hadal
