// One direction between two ranks' devices: an NCCL communicator of the two, on a queue of its own on either side, through which messages
// go one after another, in the order in which both ranks start them.
//
// Why a communicator for each direction: what a rank sends never stands in line behind what it receives, so that two ranks that send to
// each other need no group calls to be safe.
// Threads: one. Blocking: Open, FinishClose and AbortAll. Errors: Unavailable, with NCCL's words; afterwards only AbortAll, which the destructor
// does for its own link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device.h"

namespace hadal {

class NcclLink {
 public:
  // CUDA streams that a link takes on its device: its queue, and two that NCCL makes for each communicator.
  static constexpr int kStreams = 3;

  // `self`, `peer`: ranks, for errors. The library and the device must outlive the link.
  NcclLink(NcclLibrary& library, Device& device, int self, int peer, bool sends)
      : library_(library), device_(device), self_(self), peer_(peer), sends_(sends) {}
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Connects the two and moves `bytes` of `scratch` once, so that nothing has to be set up later: both call it, with the same id.
  // `alive`: asked while it waits; an error of it ends the wait, since NCCL does not know that a rank has given up elsewhere.
  absl::Status Open(const NcclUniqueId& id, std::byte* scratch, int64_t bytes, absl::Time deadline,
                    const std::function<absl::Status()>& alive);
  // Starts a message of bytes ≥ 1 that reads or writes `data` when `after` is reached; `done` then stands for its end.  REQUIRES: the peer
  // starts the other side of the same message, and has none before it that this rank has not started.
  absl::Status Start(void* data, int64_t bytes, DeviceQueues::Event after, DeviceQueues::Event done);
  // Whether the link still works. Cheap.
  absl::Status Check();

  // The clean end, in two parts, so that all links of a rank end at once.  REQUIRES: every message is done; the peer calls both too.
  absl::Status BeginClose();
  absl::Status FinishClose(absl::Time deadline);
  // Stops what is under way on these links of a rank, all at once: ncclCommAbort gives memory of the device back, which waits for the kernels of
  // every other link, and those of a lost peer end only when they are aborted too. So each is aborted by a thread of its own. One that does not
  // come back within kAbortTimeout (NCCL then waits for its own threads) is left behind: the process is about to end. Blocking: at most that.
  static void AbortAll(std::span<NcclLink* const> links);
  static constexpr absl::Duration kAbortTimeout = absl::Seconds(10);

 private:
  absl::Status Failed(NcclResult result, const char* doing);
  // Waits until a call that went on by itself has ended.
  absl::Status Settle(NcclResult result, const char* doing, absl::Time deadline,
                      const std::function<absl::Status()>& alive = {});
  absl::Status WarmUp(std::byte* scratch, int64_t bytes, absl::Time deadline,
                      const std::function<absl::Status()>& alive);

  NcclLibrary& library_;
  Device& device_;
  const int self_, peer_;
  const bool sends_;
  NcclComm comm_ = nullptr;
  DeviceQueues::Queue queue_ = nullptr;
};

}  // namespace hadal
