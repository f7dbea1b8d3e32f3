// The queues and events of the emulated device. Its main order finishes at once unless a test delays it; a queue holds
// work added by others (emulated_nccl.h), which finishes when that work does. Strict: every work item in a queue must
// be preceded by its own Await; otherwise it could overlap the kernels that produce or use its bytes.
// Threads: as Device; implementations of Pending are responsible for their own. Calls them without holding a lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
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

using PendingList = std::vector<std::shared_ptr<PendingWork>>;

class EmulatedQueues final : public DeviceQueues {
 public:
  // `standstill`: called when a queue or event is made, because that may be a standstill.
  explicit EmulatedQueues(std::function<void()> standstill) : standstill_(std::move(standstill)) {}
  // Aborts if a queue or event was not destroyed.
  ~EmulatedQueues() override;

  absl::StatusOr<Queue> MakeQueue() override;
  absl::StatusOr<Event> MakeEvent() override;
  void DestroyQueue(Queue queue) override;
  void DestroyEvent(Event event) override;
  void Record(Event event, Queue queue) override;
  void Await(Queue queue, Event event) override;
  bool Reached(Event event) override;
  void AwaitOnHost(Event event, const char* /*what*/) override {
    while (!Reached(event)) std::this_thread::yield();
  }

  // Whether all work in the queues is done.
  bool Idle() const;

  // Delays all work in the main order so far until `work` ends, for tests of code that waits for it.
  void DelayMain(std::shared_ptr<PendingWork> work) {
    const std::lock_guard lock(mutex_);
    main_ = {std::move(work)};
  }

  // Adds work to the queue and returns the work that must finish before it.
  PendingList Put(Queue queue, std::shared_ptr<PendingWork> work);
  // As above for a kernel, which may also directly follow another kernel.
  PendingList PutKernel(Queue queue, std::shared_ptr<PendingWork> kernel);

 private:
  struct QueueState {
    PendingList before;    // must finish before the next work
    bool awaited = false;  // whether Await was called since the last work
  };
  struct EventState {
    PendingList of;
    bool recorded = false;
  };
  QueueState& StateOf(Queue queue);
  EventState& StateOf(Event event, bool recorded);

  const std::function<void()> standstill_;
  mutable std::recursive_mutex mutex_;  // for all below: a checkpoint's thread has a queue
  std::map<Queue, std::unique_ptr<QueueState>> queues_;
  PendingList main_;
  Queue last_kernel_ = nullptr;  // the queue of the last kernel, if nothing was recorded or awaited since
  std::map<Event, std::unique_ptr<EventState>> events_;
};

}  // namespace hadal::testing
