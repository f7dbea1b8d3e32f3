// The queues and events of the emulated device. Its main order finishes at once unless a test delays it; a queue holds
// work added by others (emulated_nccl.h), which finishes when that work does. Strict: every work item in a queue must
// be preceded by its own Await; otherwise it could overlap the kernels that produce or use its bytes. Where the main
// order waits for a queue, the host does.
//
// Hardware queues: a GPU has CUDA_DEVICE_MAX_CONNECTIONS of them (1 to 32; 8 if the variable is not set), which the
// driver reads when it starts, and here each object. The main order is stream 0, each queue the next stream, and NCCL
// takes more (TakeStreams); stream n is in hardware queue n modulo their number. What others put into a stream (Put)
// runs only after all that was put into streams of the same hardware queue before it, and so do queued kernels, and
// events of the main order.
// Threads: as Device; implementations of Pending are responsible for their own. Calls them without holding a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device_queues.h"

namespace hadal::testing {

// Work that finishes independently.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  virtual bool Done() = 0;
};

// Work that ends when a test says so.
struct HeldWork final : PendingWork {
  bool Done() override { return done; }
  std::atomic<bool> done = false;
};

using PendingList = std::vector<std::shared_ptr<PendingWork>>;

class EmulatedQueues final : public DeviceQueues {
 public:
  // `standstill`: called when a queue or event is made, because that may be a standstill.
  // What else is enqueued on the main order.
  struct MainOrder {
    std::function<int64_t()> enqueued;                     // how much so far
    std::function<void(int64_t)> seen_done, waited_until;  // the host has seen so much done, or waited for it
    std::function<bool(std::function<void()>)> records;    // whether this thread records a graph, now with this call
  };
  EmulatedQueues(std::function<void()> standstill, MainOrder main_order)
      : standstill_(std::move(standstill)), main_order_(std::move(main_order)) {}
  // Aborts if a queue or event was not destroyed.
  ~EmulatedQueues() override;

  absl::StatusOr<Queue> MakeQueue() override;
  absl::StatusOr<Event> MakeEvent() override;
  absl::StatusOr<Event> MakeTimedEvent() override { return MakeEvent(); }
  void DestroyQueue(Queue queue) override;
  void DestroyEvent(Event event) override;
  void Record(Event event, Queue queue) override;
  void Await(Queue queue, Event event) override;
  bool Reached(Event event) override;
  void AwaitOnHost(Event event, const char* what, const std::function<void()>* meanwhile) override;
  // Of the main order, in which an event is reached when it is recorded, or when it is first seen reached.
  double SecondsBetween(Event first, Event second) override;

  static int HardwareQueues();
  // Whether all work in the queues is done.
  bool Idle() const;

  // Delays all work in the main order so far until `work` ends, for tests of code that waits for it.
  void DelayMain(std::shared_ptr<PendingWork> work) {
    const std::lock_guard lock(mutex_);
    main_ = {std::move(work)};
  }

  // A rank's streams, so that with 32 hardware queues no two share one (runtime/comm/nccl_communicator.md).
  static constexpr int kMostResiduals = 24;
  // Takes the numbers of `count` streams, also those that NCCL makes for itself, and returns the first. Aborts beyond
  // kMostResiduals.
  int TakeStreams(int count);
  // Adds work to the queue, and work that waits for it to stream `beside`, as NCCL does. Returns the work that must
  // finish before it.
  PendingList Put(Queue queue, int beside, std::shared_ptr<PendingWork> work);
  // As above for a kernel, which may also directly follow another kernel.
  PendingList PutKernel(Queue queue, std::shared_ptr<PendingWork> kernel);

 private:
  struct QueueState {
    PendingList before;    // must finish before the next work
    bool awaited = false;  // whether Await was called since the last work
    int stream = 0;
  };
  struct EventState {
    PendingList of;
    bool recorded = false;
    int64_t enqueued = kOnQueue;  // before it on the main order
    double reached_seconds = 0;
    static constexpr int64_t kOnQueue = -1;
  };
  QueueState& StateOf(Queue queue);
  EventState& StateOf(Event event, bool recorded);
  // What must finish before new work in the hardware queue of `stream`.
  PendingList InHardwareQueueOf(int stream) const;

  const std::function<void()> standstill_;
  const MainOrder main_order_;
  mutable std::recursive_mutex mutex_;  // for all below: a checkpoint's thread has a queue
  const int hardware_queues_ = HardwareQueues();
  int streams_ = 1;
  std::map<int, std::shared_ptr<PendingWork>> last_put_;  // of each stream
  std::map<Queue, std::unique_ptr<QueueState>> queues_;
  PendingList main_;
  Queue last_kernel_ = nullptr;  // the queue of the last kernel, if nothing was recorded or awaited since
  std::map<Event, std::unique_ptr<EventState>> events_;
};

}  // namespace hadal::testing
