// Orders of work besides a device's main one (on a GPU: streams), and the events that connect them. Transfers run
// beside kernels and wait for them, and kernels wait for transfers, without the host waiting for either. Some kernels
// run beside others, too (pipeline/exchange/side_queue.h).
//
//   kernels … Record(ready, main)            the host continues
//   Await(queue, ready); transfer on queue   starts when those kernels are done
//   Record(done, queue) … Reached(done)      kernels put into the main order from now on see what the transfer wrote
//
// Threads: the device's one thread. Blocking: only MakeQueue and MakeEvent.
#pragma once

#include "absl/status/statusor.h"

namespace hadal {

class DeviceQueues {
 public:
  // The driver's handles: cudaStream_t and cudaEvent_t.
  using Queue = void*;
  using Event = void*;
  static constexpr Queue kMain = nullptr;  // the device's main order

  virtual ~DeviceQueues() = default;

  // Each may be a standstill (device.h) and announces it. So make queues and events before work that cannot wait.
  // Errors: ResourceExhausted.
  virtual absl::StatusOr<Queue> MakeQueue() = 0;
  virtual absl::StatusOr<Event> MakeEvent() = 0;
  // REQUIRES: nothing is under way in the queue.
  virtual void DestroyQueue(Queue queue) = 0;
  virtual void DestroyEvent(Event event) = 0;

  // From now on the event stands for all work put into the queue so far.
  virtual void Record(Event event, Queue queue) = 0;
  // Work put into the queue from now on runs after what the event stands for. REQUIRES: recorded; queue is not the main
  // order.
  virtual void Await(Queue queue, Event event) = 0;
  // Whether all that the event stands for is done.  REQUIRES: recorded.
  virtual bool Reached(Event event) = 0;
};

}  // namespace hadal
