// One direction between the devices of two ranks: an NCCL communicator of the two, on a queue of its own on each
// device. Messages run one after another, in the order in which both ranks start them.
//
// With one communicator per direction a rank's sends never queue behind its receives, so two ranks can send to each
// other without group calls.
// Threads: one. Blocking: Open, FinishClose and AbortAll. Errors, with NCCL's message: Internal if CUDA failed
// on this rank, else Unavailable. Afterwards only AbortAll may be called; the destructor does so for its own link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/deadline.h"
#include "runtime/device.h"

namespace hadal {

class NcclLink {
 public:
  // CUDA streams of a link on its device: its queue, and two that NCCL creates for each communicator.
  static constexpr int kStreams = 3;

  // `self`, `peer`: ranks, for error messages. The library and the device must outlive the link.
  NcclLink(NcclLibrary& library, Device& device, int self, int peer, bool sends)
      : library_(library), device_(device), self_(self), peer_(peer), sends_(sends) {}
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Connects the two ranks and moves `bytes` of `scratch` once, which completes NCCL's set-up. Both ranks must call it
  // with the same id. Calls `alive` while it waits and returns its errors, because NCCL does not notice that a rank has
  // given up elsewhere.
  absl::Status Open(const NcclUniqueId& id, std::byte* scratch, int64_t bytes, const Deadline& deadline,
                    const std::function<absl::Status()>& alive);
  // Starts a message of bytes ≥ 1 that accesses `data` after `after` is reached; `done` is reached when the message
  // ends. REQUIRES: the peer starts the other side of this message, and both have started the same earlier messages.
  absl::Status Start(void* data, int64_t bytes, DeviceQueues::Event after, DeviceQueues::Event done);
  // Whether the link still works. Cheap.
  absl::Status Check();

  // Shuts down without an error, in two parts, so that all links of a rank shut down concurrently. REQUIRES: every
  // message is done; the peer calls both, too.
  absl::Status BeginClose();
  absl::Status FinishClose(const Deadline& deadline);
  // Stops these links of a rank, each in a thread of its own. They must be aborted concurrently: ncclCommAbort frees
  // device memory, which waits for the kernels of every other link, and kernels that wait for a lost peer end only when
  // they are aborted, too. Links for which no thread can be started are aborted by the calling thread in turn, after
  // the others have been started; that takes as long as NCCL takes. Blocking: otherwise at most kAbortTimeout; an abort
  // that takes longer (NCCL then waits for its own threads) is abandoned, because the process is about to end.
  static void AbortAll(std::span<NcclLink* const> links);
  static constexpr absl::Duration kAbortTimeout = absl::Seconds(10);

 private:
  absl::Status Failed(NcclResult result, const char* doing);
  // Waits for the end of a call that continues in the background.
  absl::Status Settle(NcclResult result, const char* doing, const Deadline& deadline,
                      const std::function<absl::Status()>& alive = {});
  absl::Status WarmUp(std::byte* scratch, int64_t bytes, const Deadline& deadline,
                      const std::function<absl::Status()>& alive);

  NcclLibrary& library_;
  Device& device_;
  const int self_, peer_;
  const bool sends_;
  NcclComm comm_ = nullptr;
  DeviceQueues::Queue queue_ = nullptr;
};

}  // namespace hadal
