// Chooses how ranks with a GPU exchange data: pipeline.transport = auto | nccl | host.
//
//   auto   NCCL if there are several ranks, each with its own GPU and the same NCCL; else the host, with the reason in
//          the log
//   nccl   NCCL, or an error with the reason
//   host   through pinned memory and MPI; no NCCL library is loaded
// All ranks choose the same, because the choice is a function of all ranks' facts.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/device_choice.h"
#include "pipeline/options/train_options.h"
#include "runtime/comm/nccl_library.h"

namespace hadal {

// Opens NCCL if it may be used: there are several ranks, this one has a device, and `asked` is not kHost; else, or if
// it is not found, returns null. Fills the fields of `facts` about NCCL.
std::unique_ptr<NcclLibrary> FindNccl(Transport asked, int ranks, DeviceFacts& facts);

struct TransportDecision {
  bool nccl = false;
  std::string notice;  // for the user; empty: nothing to say
};
// `ranks`: the facts of all ranks, in rank order; `gpu`: DeviceDecision::gpu. Pure.
// Errors: InvalidArgument for `nccl` where NCCL is impossible; for `nccl` and `auto` where NCCL is possible but a
// rank's settings of NCCL are not allowed (NcclRefusal): the user must change them, or ask for `host`.
absl::StatusOr<TransportDecision> DecideTransport(Transport asked, bool gpu, std::span<const DeviceFacts> ranks);

// One setting of a variable that NCCL reads.
struct NcclSetting {
  std::string variable;  // "NCCL_DEBUG=INFO"
  std::string file;      // that sets it; empty: the environment
};
// Returns the settings that NCCL would find: those of `environment` (null-terminated), then from each file those lines
// NAME=VALUE whose names are not set yet. A file that cannot be read counts as empty, as NCCL treats it.
std::vector<NcclSetting> NcclSettings(const char* const* environment, std::span<const std::string> files);
// NCCL's files in its order: $NCCL_CONF_FILE or else ~/.nccl.conf, and /etc/nccl.conf.
std::vector<std::string> NcclFiles();

// Returns the user's variables that NCCL itself reads, of those in runtime/logged_environment.h, such as
// "NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=ib0", in order of name; "" if there are none.
std::string NcclVariables(std::span<const NcclSetting> settings);

// Returns why a run over NCCL is refused with these settings: what, value, limit, remedy; "" if it is not. Ranks could
// wait for each other for ever (runtime/comm/nccl_communicator.md):
//   CUDA_DEVICE_MAX_CONNECTIONS other than 32     streams share hardware queues
//   NCCL_MAX_CTAS, NCCL_MIN_CTAS, NCCL_MIN_NCHANNELS, NCCL_MIN_P2P_NCHANNELS beyond 4    not all kernels fit on the GPU
//   NCCL_LAUNCH_ORDER_IMPLICIT     NCCL makes its communicators wait for each other
//   NCCL_COMM_BLOCKING     its calls wait for peers, without a deadline and without a look at whether these still run
std::string NcclRefusal(std::span<const NcclSetting> settings);

struct NcclConditions {
  std::string variables;  // NcclVariables
  std::string refusal;    // NcclRefusal; "": NCCL may be used
};
// Returns the conditions of this process. Also refuses if its GPU (the current device) lacks a hardware queue for each
// of a rank's streams: the driver may provide fewer than CUDA_DEVICE_MAX_CONNECTIONS. Blocking: see CountHeldStreams
// (kernels/cuda_host/held_streams.h).
NcclConditions ExamineNcclConditions();

}  // namespace hadal
