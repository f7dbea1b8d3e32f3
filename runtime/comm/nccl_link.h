// An NcclLink is one NCCL communicator of a group of ranks, with a queue of its own on each rank's device. There are
// three kinds: links for single messages to higher ranks (kUp), for single messages to lower ranks (kDown), and for
// exchanges (kBoth): sets of messages in both directions, each set one NCCL group, whose messages run at once. What a
// rank starts on a link runs in the order of its calls of Start, one call's messages after another's.
//
// nccl_communicator.md says in which order ranks may start messages, so that no circular wait arises.
// Threads: one. Blocking: Open, MoveFirst, FinishClose and AbortAll. Errors: DeadlineExceeded if NCCL does not finish
// before the deadline (Start: 60 s); else with NCCL's message, Internal if CUDA failed on this rank, or Unavailable.
// After an error only AbortAll may be called; the destructor calls it for its own link.
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
  enum class Direction { kUp, kDown, kBoth };

  // CUDA streams that a link uses on its device: its queue, and two that NCCL creates for each communicator. Streams
  // that share a hardware queue of the GPU can deadlock, so launch/transport_choice.cc counts these.
  static constexpr int kStreams = 3;
  // The most thread blocks of one message: the number that NCCL uses for point-to-point transfers between two GPUs of a
  // host.
  static constexpr int kMostBlocks = 4;
  // The most thread blocks of one exchange in a group of more than two ranks; all its messages share them. Taken from
  // NCCL's documentation, not measured.
  static constexpr int kMostExchangeBlocks = 16;

  struct Message {
    bool is_send = false;
    int peer = 0;  // a rank of the group
    void* data = nullptr;
    int64_t bytes = 0;  // ≥ 1
  };

  // `ranks`: of the group, ascending; `self`: this rank, one of them. The library and the device must outlive the link.
  NcclLink(NcclLibrary& library, Device& device, std::vector<int> ranks, int self, Direction direction);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Joins the group. All its ranks must call it with the same id. NCCL does not notice if another rank fails and never
  // joins, so Open calls `alive` again and again while it waits, and returns its error if it fails. Errors also:
  // ResourceExhausted.
  absl::Status Open(const NcclUniqueId& id, const Deadline& deadline, const std::function<absl::Status()>& alive);
  // Transfers the first messages with a peer (one, or one each way), during which NCCL connects the two ranks. Both
  // must call it before they Start messages with each other. `alive`: as in Open.
  absl::Status MoveFirst(std::span<const Message> messages, const Deadline& deadline,
                         const std::function<absl::Status()>& alive);
  // Starts `messages`, which access their data after the event `after` is reached; records `done`, which is reached
  // when all have ended. REQUIRES: exactly one message on a kUp or kDown link, at least one on a kBoth link; the peers
  // start the matching messages, in the same order between any two ranks.
  absl::Status Start(std::span<const Message> messages, DeviceQueues::Event after, DeviceQueues::Event done);
  // Whether the link still works. Cheap.
  absl::Status Check();

  // Shutdown without an error, in two parts, so that a rank's links shut down concurrently: first BeginClose on every
  // link, then FinishClose. REQUIRES: every message is done; all ranks of the group call both.
  absl::Status BeginClose();
  absl::Status FinishClose(const Deadline& deadline);
  // Stops these links of a rank, each in a thread of its own. They must be aborted concurrently: ncclCommAbort frees
  // device memory, which waits for the kernels of every other link, and kernels that wait for a lost peer end only when
  // they are aborted, too. Blocking: at most kAbortTimeout; then the aborts that still run are abandoned, because the
  // process is about to end. If a thread cannot be started, the calling thread aborts that link itself, without a time
  // limit.
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
