// A device's queues beside its main queue (CUDA streams), and events that connect queues. Work on such a queue,
// mostly transfers, runs concurrently with the main queue's kernels and can wait for them on the device (Await). The
// main queue waits only for a branch: kernels on another queue that wait for nothing but an event of the main queue,
// also in a capture. It never waits for a transfer: the host launches kernels that need one after it has seen its
// event (Reached).
//
//   kernels … Record(ready, main)            the host continues
//   Await(queue, ready); transfer on queue   starts when those kernels are done
//   Record(done, queue) … Reached(done)      once this is true, kernels enqueued on the main queue see the bytes
// Threads: as Device (device.h). Blocking: only MakeQueue, MakeEvent, MakeTimedEvent and AwaitOnHost.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace hadal {

class DeviceQueues {
 public:
  // The driver's handles: cudaStream_t and cudaEvent_t.
  using Queue = void*;
  using Event = void*;
  static constexpr Queue kMain = nullptr;  // the device's main queue

  virtual ~DeviceQueues() = default;

  // Each of the three Make calls may be a standstill, which it announces (Device::OnStandstill); make queues and
  // events before enqueuing work that a standstill must not interrupt. Errors: ResourceExhausted.
  virtual absl::StatusOr<Queue> MakeQueue() = 0;
  virtual absl::StatusOr<Event> MakeEvent() = 0;
  // As MakeEvent; the event also records its time, for SecondsBetween.
  virtual absl::StatusOr<Event> MakeTimedEvent() = 0;
  // REQUIRES: the queue has no work in progress.
  virtual void DestroyQueue(Queue queue) = 0;
  virtual void DestroyEvent(Event event) = 0;

  // The event now stands for all work enqueued on `queue` so far.
  virtual void Record(Event event, Queue queue) = 0;
  // Work enqueued on `queue` from now on runs after the event. REQUIRES: recorded; for the main queue, on a branch.
  virtual void Await(Queue queue, Event event) = 0;
  // Whether all work that the event stands for is done. REQUIRES: recorded.
  virtual bool Reached(Event event) = 0;
  // Waits until the event is reached. `what`, a literal, names the wait in the message if the device hangs. Calls
  // `meanwhile` again and again during the wait; if it is null, sleeps between looks at the event.
  virtual void AwaitOnHost(Event event, const char* what, const std::function<void()>* meanwhile) = 0;
  // The device's time from one event to the other.  REQUIRES: both are timed, recorded on one queue, and reached.
  virtual double SecondsBetween(Event first, Event second) = 0;
};

}  // namespace hadal
