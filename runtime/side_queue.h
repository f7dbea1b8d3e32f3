// SideQueue runs kernels or copies on a second queue of a device, beside its main queue, with the events that
// synchronise the two. Main order: the order of the work on the main queue.
//
//   main order   … gradients complete │ MarkReady    parts of the backward pass …           a kernel reads the result
//   queue                             └─────────►  Begin │ kernels │ End ── Done, called by the host ►  launched now
//
// The work is numbered pieces, such as parts of a gradient. A piece starts when everything that was in the main order
// at its MarkReady is done; what is launched later in the main order runs concurrently. The host calls Done before it
// launches what needs the piece; or, if pieces are kernels alone, the main order waits for it (Join). Only kernels
// whose headers allow it may run here, because others use scratch memory that the main order uses at the same time.
// Threads: the thread that makes the device's calls. If pieces only copy to the host, one other thread may call Begin,
// End and Finish instead, also during a capture (device.h). Otherwise only pieces from MarkReady to Join may be part of
// a capture. Blocking: only Finish.
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
  // For pieces [0, pieces); each may run many times. At most `most_under_way` pieces, with consecutive numbers, may be
  // between Begin and Done or Join at a time. It takes `queue`; null: makes one. Errors: ResourceExhausted. `device`
  // must outlive the object.
  static absl::StatusOr<std::unique_ptr<SideQueue>> Create(Device& device, size_t pieces, size_t most_under_way,
                                                           DeviceQueues::Queue queue = nullptr);
  // REQUIRES: no piece is between Begin and Done.
  ~SideQueue();
  SideQueue(const SideQueue&) = delete;
  SideQueue& operator=(const SideQueue&) = delete;

  DeviceQueues::Queue queue() const { return queue_; }
  // Declares that everything the pieces [first, last) depend on has been launched in the main order.
  void MarkReady(size_t first, size_t last);
  // The event that MarkReady recorded for the piece. It keeps this meaning until the next MarkReady of the piece.
  // REQUIRES: marked ready.
  DeviceQueues::Event ready(size_t piece) const { return waits_for_[piece]; }
  // Returns the stream on which to launch the piece's work, all of it before End. REQUIRES: marked ready.
  Stream Begin(const Stream& main, size_t piece);
  void End(size_t piece);
  // Lets the main order wait for a piece that was ended. REQUIRES: the piece's work is kernels.
  void Join(size_t piece) { queues_.Await(DeviceQueues::kMain, done_[piece % done_.size()]); }
  // Whether a piece that was ended is done. Does not wait.
  bool Done(size_t piece);
  // Waits until the piece is done. `what`: see DeviceQueues::AwaitOnHost.
  void Finish(size_t piece, const char* what) { queues_.AwaitOnHost(done_[piece % done_.size()], what, nullptr); }

 private:
  explicit SideQueue(Device& device) : queues_(device.queues()) {}

  DeviceQueues& queues_;
  DeviceQueues::Queue queue_ = nullptr;
  std::vector<DeviceQueues::Event> ready_;      // [pieces] recorded for the first piece of each range marked at once
  std::vector<DeviceQueues::Event> waits_for_;  // [pieces] which of ready_
  std::vector<DeviceQueues::Event> done_;       // [most_under_way]
};

}  // namespace hadal
