// How two ranks with devices are connected by NCCL: a link each way (nccl_link.h), whose identifier the sender asks NCCL for and the receiver
// gets through a communicator of the host, `control`; and in which order a rank connects to its peers, one after another.
//
// Threads: one, the device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/device.h"

namespace hadal {

// Two ranks that exchange messages; first ≤ second.
struct RankPair {
  int first = 0;
  int second = 0;
  bool operator==(const RankPair&) const = default;
};

// The pairs, each once, in an order in which ranks can connect one pair after another: never two waiting in a circle, and with neighbours
// only, all ranks busy at once (pairs of one distance in two rounds, each a matching).
std::vector<RankPair> InRounds(std::vector<RankPair> pairs);

// One rank's ends of the links between it and `rank`.
struct PeerLinks {
  int rank = 0;
  std::unique_ptr<NcclLink> to, from;  // null: that is this rank itself
};

// What links are made with; library, device and control must outlive them.
struct LinkMaking {
  NcclLibrary& library;
  Device& device;
  Communicator& control;
  std::byte* scratch = nullptr;  // of the device: what each link's first message moves
  int64_t scratch_bytes = 0;
  absl::Duration timeout;  // of each link
};

// Connects this rank of `control` to the other one of `pair`.  Blocking: both call it.  REQUIRES: this rank is one of two.
// Errors: Unavailable where NCCL gives no identifier; those of NcclLink::Open and of `control`. Then no link is left.
absl::StatusOr<PeerLinks> ConnectPair(const LinkMaking& making, const RankPair& pair);

}  // namespace hadal
