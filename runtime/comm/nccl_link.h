// One direction between the devices of two ranks: an NCCL communicator of the two, on a queue of its own on each
// device. Messages go one after another, in the order in which both ranks start them.
//
// Why one communicator a direction: a rank's sends never wait in line after its receives. So two ranks can send to each
// other without group calls.
// Threads: one. Blocking: Open, FinishClose and AbortAll. Errors: Unavailable, with NCCL's message. Afterwards only
// AbortAll may be called; the destructor does that for its own link.
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
  // CUDA streams that a link takes on its device: its queue, and two that NCCL makes for each communicator.
  static constexpr int kStreams = 3;

  // `self`, `peer`: ranks, for errors. The library and the device must outlive the link.
  NcclLink(NcclLibrary& library, Device& device, int self, int peer, bool sends)
      : library_(library), device_(device), self_(self), peer_(peer), sends_(sends) {}
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Connects the two ranks and moves `bytes` of `scratch` once, so that nothing remains to be set up. Both ranks call
  // it with the same id. `alive` is called while it waits; an error from it ends the wait, because NCCL does not notice
  // that a rank has given up elsewhere.
  absl::Status Open(const NcclUniqueId& id, std::byte* scratch, int64_t bytes, const Deadline& deadline,
                    const std::function<absl::Status()>& alive);
  // Starts a message of bytes ≥ 1 that reads or writes `data` once `after` is reached; `done` is reached when the
  // message ends. REQUIRES: the peer starts the other side of this message, and has started no earlier message that
  // this rank has not.
  absl::Status Start(void* data, int64_t bytes, DeviceQueues::Event after, DeviceQueues::Event done);
  // Whether the link still works. Cheap.
  absl::Status Check();

  // Ends without an error, in two parts, so that all links of a rank end at once. REQUIRES: every message is done; the
  // peer calls both too.
  absl::Status BeginClose();
  absl::Status FinishClose(const Deadline& deadline);
  // Stops what is under way on these links of a rank, all at once, each in a thread of its own. All at once, because
  // ncclCommAbort gives back device memory, which waits for the kernels of every other link, and the kernels of a lost
  // peer end only when they are aborted too. An abort that does not return within kAbortTimeout (NCCL then waits for
  // its own threads) is abandoned: the process is about to end. Blocking: at most kAbortTimeout. Links for which no
  // thread can be started are aborted by this one, one after another, when the others are under way; that may take as
  // long as NCCL takes.
  static void AbortAll(std::span<NcclLink* const> links);
  static constexpr absl::Duration kAbortTimeout = absl::Seconds(10);

 private:
  absl::Status Failed(NcclResult result, const char* doing);
  // Waits until a call that continues on its own has ended.
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
