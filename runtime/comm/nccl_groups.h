// Connects groups of ranks by NCCL. A group for messages (Send, Receive) has two NCCL communicators: one for messages
// to higher ranks, one for messages to lower ranks (nccl_link.h). A group for exchanges (Communicator::Exchange) has
// one. The group's lowest rank gets the identifiers of these from NCCL and sends them to the others through `control`,
// a communicator in host memory.
// Threads: only the thread that makes the device's calls.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/device.h"

namespace hadal {

// Two ranks that exchange messages; first < second.
struct RankPair {
  int first = 0;
  int second = 0;
  bool operator==(const RankPair&) const = default;
};

// Ranks that share NCCL communicators, and those pairs of them that send to each other. No pair is in two groups of one
// kind, and no rank is in two groups for exchanges.
struct TransferGroup {
  enum class Kind { kMessages, kExchanges };
  std::vector<int> ranks;  // ascending
  std::vector<RankPair> pairs;
  Kind kind = Kind::kMessages;
};

// Returns the pairs, each once, in an order in which the ranks can connect one pair after another without a circular
// wait. Many pairs connect at once: pairs with one difference of ranks, such as all neighbours, take two rounds.
std::vector<RankPair> InRounds(std::vector<RankPair> pairs);

// One rank's links in a group; null where the group's kind has no such link.
struct GroupLinks {
  std::unique_ptr<NcclLink> up;    // messages to higher ranks
  std::unique_ptr<NcclLink> down;  // messages to lower ranks
  std::unique_ptr<NcclLink> both;  // exchanges

  // The link for messages from `sender` to `receiver`. REQUIRES: a group for messages.
  NcclLink& Of(int sender, int receiver) const { return sender < receiver ? *up : *down; }
};

// Arguments of ConnectGroup. Library, device and control must outlive the links.
struct LinkMaking {
  NcclLibrary& library;
  Device& device;
  Communicator& control;
  std::byte* scratch = nullptr;  // device memory: the contents of each pair's first messages, which have no meaning
  int64_t scratch_bytes = 0;
  absl::Duration timeout;  // per link
};

// Opens this rank's links of the group, and exchanges the first messages of its pairs, both ways. Blocking: all ranks
// of the group must call it. REQUIRES: this rank is one of them. Errors: Unavailable if NCCL provides no identifier;
// those of NcclLink and of `control`. On an error no link is left.
absl::StatusOr<GroupLinks> ConnectGroup(const LinkMaking& making, const TransferGroup& group);

}  // namespace hadal
