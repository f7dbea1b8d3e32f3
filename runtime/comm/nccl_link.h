// Messages within a group of ranks: an NCCL communicator of the group, on a queue of its own on each device. Either
// single messages, all to higher or all to lower ranks, or sets of messages both ways. What a rank starts runs one
// after another, in the order in which it starts it; the messages of a set run at once (an NCCL group).
//
// nccl_communicator.md says in which order ranks may start messages, so that these never wait for each other.
// Threads: one. Blocking: Open, MoveFirst, FinishClose and AbortAll. Errors, with NCCL's message: Internal if CUDA
// failed on this rank, else Unavailable. Afterwards only AbortAll may be called; the destructor does so for its own
// link.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/clock.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device.h"

namespace hadal {

class NcclLink {
 public:
  enum class Direction { kUp, kDown, kBoth };  // to higher ranks, to lower ranks, sets of messages

  // CUDA streams of a link on its device: its queue, and two that NCCL creates for each communicator. Work of NCCL's in
  // the latter waits for the link's messages.
  static constexpr int kStreams = 3;
  // The most thread blocks of a message: as many as NCCL's own point-to-point transfers use between two GPUs of a host.
  static constexpr int kMostBlocks = 4;
  // Of an exchange, whose messages with several peers share them. By NCCL's documentation, not measured.
  static constexpr int kMostExchangeBlocks = 16;

  struct Message {
    bool is_send = false;
    int peer = 0;  // a rank of the group
    void* data = nullptr;
    int64_t bytes = 0;  // ≥ 1
  };

  // `ranks`: the group's, ascending, `self` among them. The library and the device must outlive the link.
  NcclLink(NcclLibrary& library, Device& device, std::vector<int> ranks, int self, Direction direction);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Joins the group. All its ranks must call it with the same id. Calls `alive` while it waits and returns its errors,
  // because NCCL does not notice that a rank has given up elsewhere.
  absl::Status Open(const NcclUniqueId& id, const Deadline& deadline, const std::function<absl::Status()>& alive);
  // Moves the first messages with a peer, one or one each way, with which NCCL connects the two. Both must call it.
  // `alive`: as above.
  absl::Status MoveFirst(std::span<const Message> messages, const Deadline& deadline,
                         const std::function<absl::Status()>& alive);
  // Starts messages that access their data after `after` is reached; `done` is reached when all have ended.
  // REQUIRES: at least one, and exactly one unless the link is for both directions; the peers start the other sides, in
  // the same order between any two ranks.
  absl::Status Start(std::span<const Message> messages, DeviceQueues::Event after, DeviceQueues::Event done);
  // Whether the link still works. Cheap.
  absl::Status Check();

  // Shuts down without an error, in two parts, so that all links of a rank shut down concurrently. REQUIRES: every
  // message is done; all ranks of the group call both.
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
  // "rank 2, messages to the higher of ranks 0, 2, 4", for errors.
  std::string Name() const;
  int PositionOf(int rank) const;
  absl::Status Failed(NcclResult result, const char* doing);
  // Waits for the end of a call that continues in the background.
  absl::Status Settle(NcclResult result, const char* doing, const Deadline& deadline,
                      const std::function<absl::Status()>& alive = {});
  absl::Status Enqueue(std::span<const Message> messages, DeviceQueues::Event after, DeviceQueues::Event done,
                       const Deadline& deadline, const std::function<absl::Status()>& alive);
  NcclResult Call(const Message& message);
  NcclResult CallInGroup(std::span<const Message> messages);

  NcclLibrary& library_;
  Device& device_;
  const std::vector<int> ranks_;
  const int self_;
  const Direction direction_;
  NcclComm comm_ = nullptr;
  DeviceQueues::Queue queue_ = nullptr;
};

}  // namespace hadal
