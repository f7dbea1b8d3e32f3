// The queues and events of the emulated device. Its main order is done, unless a test delays it; a queue holds what
// others put there (emulated_nccl.h), which ends when it ends. Strict: what is put into a queue must have an Await of
// its own before it, else it would run beside the kernels that make or use its bytes.
// Threads: as Device; Pending's are its own business.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/device_queues.h"

namespace hadal::testing {

// Work that ends by itself.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  virtual bool Done() = 0;
};

using PendingList = std::vector<std::shared_ptr<PendingWork>>;

class EmulatedQueues final : public DeviceQueues {
 public:
  // `standstill`: as making a queue or an event may be one.
  explicit EmulatedQueues(std::function<void()> standstill) : standstill_(std::move(standstill)) {}
  // Aborts where a queue or an event was not destroyed.
  ~EmulatedQueues() override;

  absl::StatusOr<Queue> MakeQueue() override;
  absl::StatusOr<Event> MakeEvent() override;
  void DestroyQueue(Queue queue) override;
  void DestroyEvent(Event event) override;
  void Record(Event event, Queue queue) override;
  void Await(Queue queue, Event event) override;
  bool Reached(Event event) override;

  // Whether all that is in the queues is done.
  bool Idle() const;

  // What is put into the main order by now ends with `work`: a main order that is late, for tests of what waits for it.
  void DelayMain(std::shared_ptr<PendingWork> work) { main_ = {std::move(work)}; }

  // Puts work into the queue and returns what it runs behind.
  PendingList Put(Queue queue, std::shared_ptr<PendingWork> work);
  // The same for a kernel, which may also follow another at once.
  PendingList PutKernel(Queue queue, std::shared_ptr<PendingWork> kernel);

 private:
  struct QueueState {
    PendingList before;    // what the next work runs behind
    bool awaited = false;  // since the last work
  };
  struct EventState {
    PendingList of;
    bool recorded = false;
  };
  QueueState& StateOf(Queue queue);
  EventState& StateOf(Event event, bool recorded);

  const std::function<void()> standstill_;
  std::map<Queue, std::unique_ptr<QueueState>> queues_;
  PendingList main_;
  Queue last_kernel_ = nullptr;  // where one was put, and nothing has been recorded or awaited since
  std::map<Event, std::unique_ptr<EventState>> events_;
};

}  // namespace hadal::testing
