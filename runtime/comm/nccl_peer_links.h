// How NCCL connects two ranks with devices: one link each way (nccl_link.h). The sender asks NCCL for the link's
// identifier, and the receiver gets it through `control`, a communicator of the host. Also the order in which a rank
// connects to its peers, one after another.
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

// The pairs, each once, in an order in which ranks can connect one pair after another. Ranks never wait in a circle. If
// only neighbours are connected, all ranks are busy at once: pairs of one distance take two rounds, each a matching.
std::vector<RankPair> InRounds(std::vector<RankPair> pairs);

// One rank's ends of the links between it and `rank`.
struct PeerLinks {
  int rank = 0;
  std::unique_ptr<NcclLink> to, from;  // null where `rank` is this rank itself
};

// What links are made of; library, device and control must outlive them.
struct LinkMaking {
  NcclLibrary& library;
  Device& device;
  Communicator& control;
  std::byte* scratch = nullptr;  // device memory that each link's first message moves
  int64_t scratch_bytes = 0;
  absl::Duration timeout;  // of each link
};

// Connects this rank to the other one of `pair`. Blocking: both call it. REQUIRES: this rank is one of the two.
// Errors: Unavailable where NCCL gives no identifier; those of NcclLink::Open and of `control`. Then no link is left.
absl::StatusOr<PeerLinks> ConnectPair(const LinkMaking& making, const RankPair& pair);

}  // namespace hadal
