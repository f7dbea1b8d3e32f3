// The NCCL functions that hadal calls, as an interface: the library itself, opened with dlopen, or an emulation in
// tests (tests/support/emulated_nccl.h), so that code built on NCCL is tested without a GPU.
//
// Each function is NCCL's function of that name, on communicators that never block the host (ncclConfig_t's blocking =
// 0). The result kNcclInProgress means that the call continues in the background; AsyncError reports when it has ended,
// and its result. Until then no other call may be made on that communicator. Threads: one thread per rank makes all
// calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/device_queues.h"

namespace hadal {

using NcclResult = int;  // ncclResult_t
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclUnhandledCudaError = 1;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

using NcclComm = void*;                      // ncclComm_t
using NcclUniqueId = std::array<char, 128>;  // ncclUniqueId

// A rank's place in a communicator.
struct NcclGroupRank {
  int rank = 0;   // in the communicator, from 0
  int ranks = 0;  // the communicator's size
};

class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;

  // For example 22809 for 2.28.9.
  virtual int Version() const = 0;
  virtual NcclResult GetUniqueId(NcclUniqueId& id) = 0;
  // Joins the communicator `id`, on the current device. `comm` must not move in memory as long as AsyncError reports
  // kNcclInProgress. `most_blocks`: the most thread blocks of a transfer.
  virtual NcclResult CommInit(NcclComm& comm, const NcclUniqueId& id, NcclGroupRank member, int most_blocks) = 0;
  // Sets `error` to the state of `comm`: kNcclInProgress, or the result of the last call.
  virtual NcclResult AsyncError(NcclComm comm, NcclResult& error) = 0;
  // Sends between two ranks match receives in the order of the calls on either side. A rank's messages run in the order
  // of its calls, whatever the queue. REQUIRES: bytes ≥ 1; `data` is device memory.
  virtual NcclResult Send(NcclComm comm, const void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) = 0;
  virtual NcclResult Receive(NcclComm comm, void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) = 0;
  // Calls of Send and Receive on one communicator between GroupStart and GroupEnd form one operation: its messages run
  // at once, in whatever order their peers start them. GroupEnd starts the operation.
  virtual NcclResult GroupStart() = 0;
  virtual NcclResult GroupEnd() = 0;
  // Shutdown without an error: call both on all ranks when all started messages are done.
  virtual NcclResult Finalize(NcclComm comm) = 0;
  virtual NcclResult Destroy(NcclComm comm) = 0;
  // Shutdown after an error: stops this communicator's kernels that wait for the peer.
  virtual NcclResult Abort(NcclComm comm) = 0;
  // Returns for example "unhandled system error: …".
  virtual std::string ErrorText(NcclResult result, NcclComm comm) = 0;
};

// 22809 → "2.28.9".
inline std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Opens libnccl.so.2 from the loader's path or CUDA's folder; it is never closed. Errors: Unavailable, with a remedy,
// if the library is not found or lacks a function, or if the build has no CUDA.
absl::StatusOr<std::unique_ptr<NcclLibrary>> OpenNccl();

}  // namespace hadal
