#include "runtime/comm/nccl_peer_links.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/check.h"
#include "runtime/comm/message_tags.h"
#include "runtime/deadline.h"
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

absl::Status OpenLink(const LinkMaking& making, NcclLink& link, bool sends, int peer) {
  Communicator& control = making.control;
  const Deadline deadline(making.timeout);
  NcclUniqueId id{};
  CommRequest request;
  if (sends) {
    if (const NcclResult result = making.library.GetUniqueId(id); result != kNcclSuccess) {
      return absl::UnavailableError(absl::StrCat(
          "rank ", control.rank(), ": NCCL provides no identifier: ", making.library.ErrorText(result, nullptr)));
    }
    HADAL_ASSIGN_OR_RETURN(request, control.Send(id.data(), id.size(), peer, kNcclIdTag));
  } else {
    HADAL_ASSIGN_OR_RETURN(request, control.Receive(id.data(), id.size(), peer, kNcclIdTag));
  }
  HADAL_RETURN_IF_ERROR(control.Wait(request, absl::Now() + deadline.Left(), "an NCCL communicator's identifier"));
  return link.Open(id, making.scratch, making.scratch_bytes, deadline, [&control] { return HostIsAlive(control); });
}

}  // namespace

std::vector<RankPair> InRounds(std::vector<RankPair> pairs) {
  const auto key = [](const RankPair& p) {
    const int distance = p.second - p.first;
    return std::tuple(distance, distance == 0 ? 0 : p.first / distance % 2, p.first);
  };
  std::sort(pairs.begin(), pairs.end(), [&](const RankPair& a, const RankPair& b) { return key(a) < key(b); });
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

absl::StatusOr<PeerLinks> ConnectPair(const LinkMaking& making, const RankPair& pair) {
  const int rank = making.control.rank();
  HADAL_CHECK(pair.first != pair.second && (rank == pair.first || rank == pair.second));
  const int other = rank == pair.first ? pair.second : pair.first;
  PeerLinks links{.rank = other,
                  .to = std::make_unique<NcclLink>(making.library, making.device, rank, other, true),
                  .from = std::make_unique<NcclLink>(making.library, making.device, rank, other, false)};
  for (const bool upwards : {true, false}) {
    const bool sends = upwards == (rank == pair.first);
    absl::Status opened = OpenLink(making, sends ? *links.to : *links.from, sends, other);
    if (opened.ok()) continue;
    // Both at once: ending one link may wait for the other's kernel, which waits for a lost peer.
    NcclLink* const both[] = {links.to.get(), links.from.get()};
    NcclLink::AbortAll(both);
    return opened;
  }
  return links;
}

}  // namespace hadal
