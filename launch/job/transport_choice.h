// Chooses how ranks with a GPU exchange data: pipeline.transport = auto | nccl | host.
//
//   auto   NCCL if there are several ranks, each with its own GPU and the same NCCL; else the host, with the reason in
//          the log
//   nccl   NCCL, or an error with the reason
//   host   through pinned memory and MPI; no NCCL library is loaded
// All ranks choose the same.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/plan/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"

namespace hadal {

// One rank's facts.
struct TransportFacts {
  std::string device;  // Device::Identity
  int nccl = 0;        // its version; 0: none
  std::string why;     // the reason if it has none
};

// Returns why these ranks cannot use NCCL, or "". REQUIRES: several ranks.
std::string WhyNoNccl(std::span<const TransportFacts> ranks);

struct ChosenTransport {
  std::unique_ptr<NcclLibrary> nccl;  // null: the host
  std::string notice;                 // for the user; empty on all ranks but the first
};

// `device`: Device::Identity; empty on the CPU, which has no choice. Blocking: all ranks must call it. Errors:
// InvalidArgument if NCCL is requested but not possible.
absl::StatusOr<ChosenTransport> ChooseTransport(Transport asked, const std::string& device, Communicator& world,
                                                Collectives& collectives);

// Returns the user's variables that NCCL itself reads, such as "NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=ib0", in order of
// name; "" if there are none.
std::string NcclVariables(const char* const* environment);

}  // namespace hadal
