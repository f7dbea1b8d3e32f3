// Connects two ranks by NCCL: one link in each direction (nccl_link.h). The sender gets the link's identifier from NCCL
// and sends it to the receiver through `control`, a host communicator. Also computes the order in which a rank connects
// to its peers.
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

// Returns the pairs, each once, in an order in which ranks can connect one pair after another without a circular wait.
// If only neighbours are connected, all ranks are busy at once: pairs of one distance take two rounds, each a matching.
std::vector<RankPair> InRounds(std::vector<RankPair> pairs);

// One rank's links to and from `rank`.
struct PeerLinks {
  int rank = 0;
  std::unique_ptr<NcclLink> to, from;  // null if `rank` is this rank itself
};

// Arguments of ConnectPair. Library, device and control must outlive the links.
struct LinkMaking {
  NcclLibrary& library;
  Device& device;
  Communicator& control;
  std::byte* scratch = nullptr;  // device memory moved by each link's first message
  int64_t scratch_bytes = 0;
  absl::Duration timeout;  // per link
};

// Connects this rank to the other rank of `pair`. Blocking: both must call it. REQUIRES: this rank is one of the two.
// Errors: Unavailable if NCCL provides no identifier; those of NcclLink::Open and of `control`. On an error no link is
// left.
absl::StatusOr<PeerLinks> ConnectPair(const LinkMaking& making, const RankPair& pair);

}  // namespace hadal
