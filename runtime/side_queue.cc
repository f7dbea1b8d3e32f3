#include "runtime/side_queue.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {

absl::StatusOr<std::unique_ptr<SideQueue>> SideQueue::Create(Device& device, size_t pieces, size_t most_under_way,
                                                             DeviceQueues::Queue queue) {
  std::unique_ptr<SideQueue> made(new SideQueue(device));
  HADAL_ASSIGN_OR_RETURN(made->queue_, queue == nullptr ? made->queues_.MakeQueue() : queue);
  for (size_t i = 0; i < pieces; ++i) {
    HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Event event, made->queues_.MakeEvent());
    made->ready_.push_back(event);
  }
  for (size_t i = 0; i < most_under_way; ++i) {
    HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Event event, made->queues_.MakeEvent());
    made->done_.push_back(event);
  }
  made->waits_for_.resize(pieces);
  return made;
}

SideQueue::~SideQueue() {
  for (const std::vector<DeviceQueues::Event>* events : {&ready_, &done_}) {
    for (DeviceQueues::Event event : *events) queues_.DestroyEvent(event);
  }
  if (queue_ != nullptr) queues_.DestroyQueue(queue_);
}

void SideQueue::MarkReady(size_t first, size_t last) {
  HADAL_CHECK_LE(last, ready_.size());
  if (first == last) return;
  queues_.Record(ready_[first], DeviceQueues::kMain);
  std::fill(waits_for_.begin() + first, waits_for_.begin() + last, ready_[first]);
}

Stream SideQueue::Begin(const Stream& main, size_t piece) {
  queues_.Await(queue_, waits_for_[piece]);
  return main.Beside(queue_);
}

void SideQueue::End(size_t piece) { queues_.Record(done_[piece % done_.size()], queue_); }

bool SideQueue::Done(size_t piece) { return queues_.Reached(done_[piece % done_.size()]); }

}  // namespace hadal
