// Kernels beside a device's main order: a queue, and the events that tie each piece of work on it to both sides.
//
//   main order   … gradients complete │ MarkReady    parts of the backward pass …           a kernel reads the result
//   queue                             └─────────►  Begin │ kernels │ End ── Done, asked by the host ─►  launched now
//
// A piece starts when what was in the main order at its MarkReady is done, and not later: what is launched there
// meanwhile goes on beside it. What came by a transfer is there when the host has seen its end
// (runtime/comm/communicator.h). Nothing in the main order waits for the queue. Only operations whose headers say so
// may be launched beside the main order: the others share scratch.
// Threads: the device's one. Blocking: none. REQUIRES: not used while the device records.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace hadal {

class SideQueue {
 public:
  // For pieces [0, pieces), again and again, of which at most `most_under_way`, consecutive ones, are between Begin and
  // Done at a time.
  // Errors: ResourceExhausted. `device` must outlive the object.
  static absl::StatusOr<std::unique_ptr<SideQueue>> Create(Device& device, size_t pieces, size_t most_under_way);
  // REQUIRES: nothing is under way.
  ~SideQueue();
  SideQueue(const SideQueue&) = delete;
  SideQueue& operator=(const SideQueue&) = delete;

  DeviceQueues::Queue queue() const { return queue_; }
  // What the pieces [first, last) wait for is in the main order by now.
  void MarkReady(size_t first, size_t last);
  // What is launched on the stream that this returns, until End, is the piece.  REQUIRES: marked ready.
  Stream Begin(const Stream& main, size_t piece);
  void End(size_t piece);
  // Whether a piece that was ended is done.
  bool Done(size_t piece);

 private:
  explicit SideQueue(Device& device) : queues_(device.queues()) {}

  DeviceQueues& queues_;
  DeviceQueues::Queue queue_ = nullptr;
  // [pieces] of a range that was marked at once, its first piece's is recorded.
  std::vector<DeviceQueues::Event> ready_;
  std::vector<DeviceQueues::Event> waits_for_;  // [pieces] which of them
  std::vector<DeviceQueues::Event> done_;       // [most_under_way]
};

}  // namespace hadal
