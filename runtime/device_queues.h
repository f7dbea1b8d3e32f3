// Orders of work beside a device's main one (on a GPU: streams), and the events that tie them together: how transfers run beside kernels
// and wait for them, and kernels for transfers, without the host waiting for either; and how some kernels run beside others
// (pipeline/side_queue.h).
//
//   kernels … Record(ready, main)            the host goes on
//   Await(queue, ready); transfer on queue   starts when those kernels are done
//   Record(done, queue) … Reached(done)      kernels put into the main order from here on see what it wrote
//
// Threads: the device's one thread. Blocking: none, but for what is made.
#pragma once

#include "absl/status/statusor.h"

namespace hadal {

class DeviceQueues {
 public:
  // What the driver has of one: cudaStream_t and cudaEvent_t.
  using Queue = void*;
  using Event = void*;
  static constexpr Queue kMain = nullptr;  // the device's main order

  virtual ~DeviceQueues() = default;

  // Each may be a standstill (device.h), and says so before: make them before what cannot wait. Errors: ResourceExhausted.
  virtual absl::StatusOr<Queue> MakeQueue() = 0;
  virtual absl::StatusOr<Event> MakeEvent() = 0;
  // REQUIRES: nothing is under way in the queue.
  virtual void DestroyQueue(Queue queue) = 0;
  virtual void DestroyEvent(Event event) = 0;

  // From now on the event stands for all that is in the queue's order so far.
  virtual void Record(Event event, Queue queue) = 0;
  // What is put into the queue from now on runs behind what the event stands for.  REQUIRES: recorded; queue is not the main order.
  virtual void Await(Queue queue, Event event) = 0;
  // Whether all that the event stands for is done.  REQUIRES: recorded.
  virtual bool Reached(Event event) = 0;
};

}  // namespace hadal
