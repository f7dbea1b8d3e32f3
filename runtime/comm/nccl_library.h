// The functions of NCCL that hadal calls, as a table: the library itself, opened with dlopen, or in tests one that is emulated
// (tests/support/emulated_nccl.h), so that what is built on NCCL is proven on machines without a GPU.
//
// The calls are NCCL's own, one to one, on communicators of two ranks that never block the host (ncclConfig_t's blocking = 0): a result of
// kInProgress means that the call goes on by itself, and AsyncError says when it has ended and how. No other call may be made on a
// communicator before that. Threads: one a rank.
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
  // This rank of the two of the communicator `id`, on the current device; `comm` stays where it is until AsyncError says that it is made. `most_blocks`: thread blocks a transfer may take.
  virtual NcclResult CommInit(NcclComm& comm, const NcclUniqueId& id, int rank, int most_blocks) = 0;
  virtual NcclResult AsyncError(NcclComm comm, NcclResult& error) = 0;
  // Between the two, in the order of the calls on either side; bytes ≥ 1, of the device.
  virtual NcclResult Send(NcclComm comm, const void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) = 0;
  virtual NcclResult Receive(NcclComm comm, void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) = 0;
  // The clean end: all that was started is done; both ranks call both.
  virtual NcclResult Finalize(NcclComm comm) = 0;
  virtual NcclResult Destroy(NcclComm comm) = 0;
  // The other end: kernels of this communicator that wait for its peer stop.
  virtual NcclResult Abort(NcclComm comm) = 0;
  // "unhandled system error: …".
  virtual std::string ErrorText(NcclResult result, NcclComm comm) = 0;
};

// 22809 → "2.28.9".
inline std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// The library libnccl.so.2, from the loader's path or CUDA's folder; it stays open.  Errors: Unavailable, with what to try, where it is
// not found, lacks a function, or the build has no CUDA.
absl::StatusOr<std::unique_ptr<NcclLibrary>> OpenNccl();

}  // namespace hadal
