// The functions of NCCL that hadal calls, as a table. The table is the library itself, opened with dlopen, or in tests
// an emulation (tests/support/emulated_nccl.h), so that code built on NCCL is tested on machines without a GPU.
//
// Each function is NCCL's function of that name, on communicators of two ranks that never block the host
// (ncclConfig_t's blocking = 0). The result kInProgress means that the call continues on its own; AsyncError says when
// it has ended, and how. Until then no other call may be made on that communicator. Threads: one a rank.
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
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

using NcclComm = void*;                      // ncclComm_t
using NcclUniqueId = std::array<char, 128>;  // ncclUniqueId

class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;

  // 22809: 2.28.9.
  virtual int Version() const = 0;
  virtual NcclResult GetUniqueId(NcclUniqueId& id) = 0;
  // Joins the communicator `id` as rank `rank` of 0 and 1, on the current device. `comm` must not move in memory until
  // AsyncError says that the communicator is made. `most_blocks`: thread blocks that a transfer may take.
  virtual NcclResult CommInit(NcclComm& comm, const NcclUniqueId& id, int rank, int most_blocks) = 0;
  virtual NcclResult AsyncError(NcclComm comm, NcclResult& error) = 0;
  // Messages match in the order of the calls on either side. bytes ≥ 1, in device memory.
  virtual NcclResult Send(NcclComm comm, const void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) = 0;
  virtual NcclResult Receive(NcclComm comm, void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) = 0;
  // The end without an error: call both when all started messages are done, on both ranks.
  virtual NcclResult Finalize(NcclComm comm) = 0;
  virtual NcclResult Destroy(NcclComm comm) = 0;
  // The end after an error: kernels of this communicator that wait for the peer stop.
  virtual NcclResult Abort(NcclComm comm) = 0;
  // "unhandled system error: …".
  virtual std::string ErrorText(NcclResult result, NcclComm comm) = 0;
};

// 22809 → "2.28.9".
inline std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Opens libnccl.so.2, from the loader's path or CUDA's folder; it stays open. Errors: Unavailable, with what to try,
// where the library is not found or lacks a function, or where the build has no CUDA.
absl::StatusOr<std::unique_ptr<NcclLibrary>> OpenNccl();

}  // namespace hadal
