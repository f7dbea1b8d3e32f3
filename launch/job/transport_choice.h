// Chooses how ranks with a GPU exchange data: pipeline.transport = auto | nccl | host.
//
//   auto   NCCL if each of several ranks has a GPU of its own and finds the same NCCL; else the host, and the log says
//          why
//   nccl   NCCL, or an error that says what is missing
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

// What a rank contributes.
struct TransportFacts {
  std::string device;  // Device::Identity
  int nccl = 0;        // its version; 0: none
  std::string why;     // why it has none
};

// Why these ranks cannot exchange by NCCL, or "".  REQUIRES: several ranks.
std::string WhyNoNccl(std::span<const TransportFacts> ranks);

struct ChosenTransport {
  std::unique_ptr<NcclLibrary> nccl;  // null: the host
  std::string notice;                 // for the user; empty on all ranks but the first
};

// `device`: Device::Identity; empty on the CPU, where there is nothing to choose. Blocking: all ranks call it together.
// Errors: InvalidArgument if NCCL is asked for but impossible.
absl::StatusOr<ChosenTransport> ChooseTransport(Transport asked, const std::string& device, Communicator& world,
                                                Collectives& collectives);

// "NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=ib0": the variables set by the user that NCCL itself reads, by name; "" if none.
std::string NcclVariables(const char* const* environment);

}  // namespace hadal
